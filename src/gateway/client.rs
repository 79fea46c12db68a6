//! The clients behind the gateway: SDKs that ask again, and the agents above them.
//!
//! A pure rule: whoever plays the client asks it after each refusal.

use crate::rng::{Purpose, Stream};
use crate::units::Span;

/// How an SDK asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdkRetries {
    /// Requests after the first.
    pub max_retries: u32,
    /// The first wait, which doubles each time.
    pub base: Span,
    /// The longest.
    pub longest: Span,
    /// Whether it waits as long as `retry-after` says, up to a minute.
    pub honours_retry_after: bool,
}

impl SdkRetries {
    /// The OpenAI and Anthropic SDKs: two retries after 0.5 s and more, up to 8 s.
    pub const SDK: Self = Self {
        max_retries: 2,
        base: Span::from_millis(500),
        longest: Span::from_secs(8),
        honours_retry_after: true,
    };

    /// Whether a status is asked again for: 408, 409, 429 and server errors.
    #[must_use]
    pub const fn covers(status: u16) -> bool {
        matches!(status, 408 | 409 | 429) || status >= 500
    }

    /// How long to wait after the `refusals`th refusal; `None` to give up. Up to a quarter of the
    /// SDK's own wait is taken off by chance.
    #[must_use]
    pub fn wait(
        &self,
        status: u16,
        refusals: u32,
        retry_after: Option<Span>,
        seed: u64,
        call: u64,
    ) -> Option<Span> {
        if refusals > self.max_retries || !Self::covers(status) {
            return None;
        }
        let asked = retry_after.filter(|span| span.0 > 0 && *span <= Span::from_secs(60));
        if let Some(asked) = asked.filter(|_| self.honours_retry_after) {
            return Some(asked);
        }
        let doubled = self.base.secs() * 2f64.powi(refusals.saturating_sub(1).min(30) as i32);
        let mut chance = Stream::new(seed, Purpose::SdkRetry, call << 8 | u64::from(refusals));
        let jitter = 1.0 - 0.25 * chance.uniform_f64();
        Some(Span::from_secs_f64(doubled.min(self.longest.secs()) * jitter))
    }
}

/// Requests to the engines that one wish of a user can become when everything fails: each layer
/// tries once and then so many times again.
#[must_use]
pub fn worst_case_attempts(retries_of_layers: &[u32]) -> u64 {
    retries_of_layers.iter().map(|retries| u64::from(*retries) + 1).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_honoured_or_not() {
        let ask = |sdk: SdkRetries| sdk.wait(503, 1, Some(Span::from_secs(1)), 7, 3).unwrap();
        assert_eq!(ask(SdkRetries::SDK), Span::from_secs(1));
        let hasty = SdkRetries { honours_retry_after: false, ..SdkRetries::SDK };
        assert!((0.375..=0.5).contains(&ask(hasty).secs()));
        assert_eq!(hasty.wait(503, 3, None, 7, 3), None, "two retries were enough");
        assert_eq!(hasty.wait(400, 1, None, 7, 3), None, "asking again does not help");
    }

    #[test]
    fn layers_multiply() {
        // Router and SDK with two retries each, an agent that starts the turn up to five times.
        assert_eq!(worst_case_attempts(&[2, 2, 4]), 45);
    }
}
