//! What the messages of a request tell without their text: fingerprints in the order sent.
//!
//! Where prompts are stored, or a logger keeps them, two calls can be compared message by message.
//! The text itself ends here: a message is a hash, a length and a role.

/// Who speaks in a message, or what else stands in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The tools' definitions, taken as one message before all others.
    Tools,
    /// System or developer prompt, wherever the API puts it.
    System,
    /// A person's words.
    User,
    /// An earlier answer of the model, calls of tools included.
    Assistant,
    /// Results of tools, also where the API sends them under the role `user`.
    Tool,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Fingerprint of role and content. Of a text that was cut, head, tail and true length count.
    pub(super) hash: u64,
    /// Characters of the whole content, also of what was cut out of it.
    pub(super) chars: u32,
    /// Fingerprints of the first characters of the text, as many as [`HEADS`] says; 0 if it is
    /// shorter.
    pub(super) heads: [u32; HEADS.len()],
    /// Who speaks.
    pub(super) role: Role,
}

/// How many of its first characters a message can be compared by. LiteLLM keeps more than these of
/// the texts that it cuts.
pub(super) const HEADS: [usize; 2] = [64, 512];

/// A message that differs from another by at most so many characters in length, and begins alike,
/// is the same but for what a client puts behind the last message of each request.
const TRAILER_CHARS_MAX: u32 = 256;

/// How much of the beginnings of two different messages is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Alike {
    /// Characters.
    pub(super) chars: u64,
    /// Whether only what stood at the end of the first is taken to have changed.
    pub(super) but_for_the_end: bool,
}

impl Message {
    /// How a later message that stands in the place of this one begins like it. `is_last` if this
    /// one was the last of its request, where clients put what they leave out of the next one.
    pub(super) fn alike(&self, later: &Self, is_last: bool) -> Alike {
        let pairs = || self.heads.into_iter().zip(later.heads);
        let in_both = pairs().take_while(|&(own, other)| own != 0 && other != 0).count();
        let equal = pairs().take(in_both).take_while(|(own, other)| own == other).count();
        let Some(&known) = equal.checked_sub(1).and_then(|at| HEADS.get(at)) else {
            return Alike::default();
        };
        if self.role != later.role {
            return Alike::default();
        }
        let differ = self.chars.abs_diff(later.chars);
        let but_for_the_end =
            is_last && equal == in_both && (1..=TRAILER_CHARS_MAX).contains(&differ);
        let shorter = u64::from(self.chars.min(later.chars));
        let chars = if but_for_the_end { shorter } else { shorter.min(known as u64) };
        Alike { chars, but_for_the_end }
    }
}

/// The messages of a request, in the order in which a server sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    /// Tools first, then the system prompt, then the conversation.
    pub(super) messages: Vec<Message>,
    /// Whether no text was cut, so that equal fingerprints mean equal text.
    pub(super) exact: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(chars: u32, heads: [u32; 2]) -> Message {
        Message { hash: 0, chars, heads, role: Role::Tool }
    }

    #[test]
    fn a_message_that_lost_its_end_is_alike_up_to_there() {
        let before = message(630, [1, 2]);
        let alike = |chars, but_for_the_end| Alike { chars, but_for_the_end };
        assert_eq!(before.alike(&message(604, [1, 2]), true), alike(604, true));
        assert_eq!(message(604, [1, 2]).alike(&before, true), alike(604, true), "it grew");
        assert_eq!(before.alike(&message(500, [1, 0]), true), alike(500, true));
        // What differs in the middle, or by too much, is alike as far as it was compared.
        assert_eq!(before.alike(&message(630, [1, 2]), true), alike(512, false));
        assert_eq!(before.alike(&message(604, [1, 2]), false), alike(512, false));
        assert_eq!(before.alike(&message(604, [1, 3]), true), alike(64, false));
        assert_eq!(before.alike(&message(5_000, [1, 2]), true), alike(512, false));
        // Nothing is known of these.
        assert_eq!(before.alike(&message(604, [4, 2]), true), alike(0, false));
        assert_eq!(message(50, [0, 0]).alike(&message(40, [0, 0]), true), alike(0, false));
        let other = Message { role: Role::User, ..message(604, [1, 2]) };
        assert_eq!(before.alike(&other, true), alike(0, false));
    }
}
