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
    /// Who speaks.
    pub(super) role: Role,
}

/// The messages of a request, in the order in which a server sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    /// Tools first, then the system prompt, then the conversation.
    pub(super) messages: Vec<Message>,
    /// Whether no text was cut, so that equal fingerprints mean equal text.
    pub(super) exact: bool,
}
