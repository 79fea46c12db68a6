//! What many sessions have in common at the head of their prompts.

use std::collections::BTreeMap;

use crate::trace::record::{Base, Name, Session, SharedContext};

/// A context that so many sessions begin with is tools and system prompt, not a conversation that
/// was resumed; the same bound as for the replay of scaled traces.
pub const COMMON_SESSIONS: u64 = 5;

/// Contexts with the sessions that begin with them.
#[derive(Clone, Debug, Default)]
pub struct Prefixes {
    places: BTreeMap<Name, usize>,
    contexts: Vec<Context>,
}

#[derive(Clone, Debug)]
struct Context {
    base: Option<usize>,
    kept: u64,
    tokens: u64,
    /// Sessions that begin with it itself, and how much of it they keep, together.
    own: (u64, u128),
}

/// The prefixes of a trace's sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Common {
    /// Sessions that have one.
    pub sessions: u64,
    /// Tokens of the outermost context of each, together: what the widest circle shares.
    pub outer: f64,
    /// Tokens of the whole prefix of each, together.
    pub whole: f64,
    /// Different outermost contexts.
    pub outermost: u64,
}

impl Prefixes {
    /// Adds a shared context; its base was added before.
    pub fn context(&mut self, context: &SharedContext) {
        let base = context.base.as_ref().and_then(|base| self.places.get(base).copied());
        self.places.insert(Name::clone(&context.name), self.contexts.len());
        self.contexts.push(Context {
            base,
            kept: context.kept_tokens.0,
            tokens: context.prompt_tokens.0,
            own: (0, 0),
        });
    }

    /// Adds a session by its first call that begins with a shared context.
    pub fn session(&mut self, session: &Session) {
        let first = session.calls.iter().find(|call| call.lane == 0);
        let Some(call) = first else { return };
        let Base::Shared(name) = &call.base else { return };
        if let Some(place) = self.places.get(name) {
            let own = &mut self.contexts[*place].own;
            own.0 += 1;
            own.1 += u128::from(call.kept_tokens.0);
        }
    }

    /// What the sessions have in common.
    #[must_use]
    pub fn common(&self) -> Common {
        let mut users: Vec<u64> = self.contexts.iter().map(|context| context.own.0).collect();
        // A base stands before what continues it.
        for place in (0..self.contexts.len()).rev() {
            if let Some(base) = self.contexts[place].base {
                users[base] += users[place];
            }
        }
        let mut common = Common::default();
        let mut outermost: Vec<usize> = Vec::new();
        for context in self.contexts.iter().enumerate().filter(|(_, c)| c.own.0 > 0) {
            let (mut place, sessions) = (context.0, context.1.own.0);
            // The mean of those that begin with it stands for each of them.
            let mut tokens = context.1.own.1 as f64 / sessions as f64;
            let mut inner = None;
            loop {
                let here = &self.contexts[place];
                tokens = tokens.min(here.tokens as f64);
                if users[place] >= COMMON_SESSIONS {
                    inner = inner.or(Some(tokens));
                }
                let Some(base) = here.base else { break };
                tokens = tokens.min(here.kept as f64);
                place = base;
            }
            let Some(inner) = inner.filter(|inner| *inner > 0.0) else { continue };
            outermost.push(place);
            common.sessions += sessions;
            common.outer += tokens * sessions as f64;
            common.whole += inner * sessions as f64;
        }
        outermost.sort_unstable();
        outermost.dedup();
        common.outermost = outermost.len() as u64;
        common
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Tokens;

    fn prefixes(own: [(u64, u128); 3]) -> Prefixes {
        let mut prefixes = Prefixes::default();
        for (name, base, kept, tokens) in
            [("a", None, 0, 100), ("b", Some("a"), 80, 130), ("c", Some("b"), 130, 900)]
        {
            prefixes.context(&SharedContext {
                name: name.into(),
                base: base.map(Into::into),
                kept_tokens: Tokens(kept),
                prompt_tokens: Tokens(tokens),
            });
        }
        for (context, own) in prefixes.contexts.iter_mut().zip(own) {
            context.own = own;
        }
        prefixes
    }

    #[test]
    fn a_conversation_that_was_resumed_is_cut_off() {
        // Two sessions resume c, which is b, of which six have the whole; b repeats 80 of a.
        let common = prefixes([(0, 0), (6, 6 * 130), (2, 2 * 900)]).common();
        let expected = Common { sessions: 8, outer: 640.0, whole: 1_040.0, outermost: 1 };
        assert_eq!(common, expected);
    }

    #[test]
    fn what_few_have_is_not_common() {
        assert_eq!(prefixes([(0, 0), (2, 260), (2, 1_800)]).common(), Common::default());
    }
}
