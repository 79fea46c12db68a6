//! Host time of a request outside the engine's steps.

use crate::units::{Span, Tokens};

/// What the API server adds to each request: never on the GPU, a constant of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiTime {
    /// Before a request is queued, whatever its length.
    pub request: Span,
    /// Before a request is queued, for each prompt token (template, tokeniser).
    pub prompt_token: Span,
    /// For each output token, seen in the whole time of the request but not between tokens.
    pub output_token: Span,
}

impl Default for ApiTime {
    fn default() -> Self {
        Self {
            request: Span::from_millis(8),
            prompt_token: Span::from_micros(2),
            output_token: Span::from_micros(46),
        }
    }
}

impl ApiTime {
    /// From the request's arrival to its place in the engine's queue.
    #[must_use]
    pub fn before_queue(&self, prompt: Tokens) -> Span {
        self.request + Span(self.prompt_token.0 * prompt.0)
    }

    /// From the engine's last token to the end of the response.
    #[must_use]
    pub fn after_last_token(&self, output: Tokens) -> Span {
        Span(self.output_token.0 * output.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_prompt_waits_before_the_queue() {
        let api = ApiTime::default();
        assert_eq!(api.before_queue(Tokens(10_000)), Span::from_millis(28));
        assert_eq!(api.after_last_token(Tokens(1_000)), Span::from_millis(46));
    }
}
