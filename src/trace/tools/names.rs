//! Fresh names: for a trace's second identity, and for two traces in one.

use rustc_hash::FxHashMap;

use crate::trace::record::{Base, Name, Session, SharedContext};

/// What stands between a name and the number of its clone.
const CLONE_MARK: char = '~';
/// A clone's number has at most so many digits; a longer one is part of the name.
const CLONE_DIGITS: usize = 9;

/// The number at the end of a clone's name, as in `s17~2`.
pub fn clone_number(name: &str) -> Option<u64> {
    let (_, digits) = name.rsplit_once(CLONE_MARK)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && digits.len() <= CLONE_DIGITS).then(|| digits.parse().ok())?
}

/// Gives names a form of their own, each made once.
#[derive(Debug, Default)]
pub struct Renamer {
    before: String,
    behind: String,
    made: FxHashMap<Name, Name>,
}

impl Renamer {
    /// Names of the clones with this number.
    pub fn cloned(number: u64) -> Self {
        Self { behind: format!("{CLONE_MARK}{number}"), ..Self::default() }
    }

    /// Names of what belongs to one of several traces.
    pub fn prefixed(prefix: &str) -> Self {
        Self { before: format!("{prefix}/"), ..Self::default() }
    }

    /// The new form of a name that is asked for once.
    pub fn form(&self, name: &str) -> Name {
        format!("{}{name}{}", self.before, self.behind).into()
    }

    /// The new form of a name; an empty one stays empty.
    pub fn name(&mut self, name: &Name) -> Name {
        if name.is_empty() {
            return Name::clone(name);
        }
        if let Some(made) = self.made.get(name) {
            return Name::clone(made);
        }
        let made = self.form(name);
        self.made.insert(Name::clone(name), Name::clone(&made));
        made
    }

    /// Gives a session, its users and its keys new names; its calls continue the shared contexts
    /// of the new names where `fresh` says so.
    pub fn session(&mut self, session: &mut Session, fresh: impl Fn(&Name) -> bool) {
        session.id = self.form(&session.id);
        for call in &mut session.calls {
            call.user = self.name(&call.user);
            call.key = call.key.as_ref().map(|key| self.name(key));
            if let Base::Shared(name) = &call.base
                && fresh(name)
            {
                call.base = Base::Shared(self.name(name));
            }
        }
    }

    /// Gives a shared context a new name, and its base where `fresh` says so.
    pub fn context(
        &mut self,
        context: &SharedContext,
        fresh: impl Fn(&Name) -> bool,
    ) -> SharedContext {
        let base = context.base.as_ref();
        let base = base.map(|base| if fresh(base) { self.name(base) } else { Name::clone(base) });
        SharedContext { name: self.name(&context.name), base, ..context.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clones_number_is_what_stands_behind_the_last_mark() {
        assert_eq!(clone_number("s17~2"), Some(2));
        assert_eq!(clone_number("s17~2~10"), Some(10));
        for name in ["s17", "~home", "a~", "a~1b", "a~1234567890"] {
            assert_eq!(clone_number(name), None, "{name}");
        }
    }
}
