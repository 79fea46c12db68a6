//! Texts whose middle or end LiteLLM cut out before it stored them.

use memchr::memmem;

/// What is left of a text that was cut.
pub(super) struct Cut<'a> {
    /// What stands before the cut.
    pub(super) head: &'a [u8],
    /// Characters cut out.
    pub(super) skipped: u64,
    /// What stands behind the cut.
    pub(super) tail: &'a [u8],
}

impl<'a> Cut<'a> {
    /// Finds the mark of newer versions, which stands between head and tail, or that of older ones,
    /// which stands at the end.
    pub(super) fn find(text: &'a [u8]) -> Option<Self> {
        if let Some(at) = memmem::find(text, b"(litellm_truncated skipped ") {
            let rest = &text[at + b"(litellm_truncated skipped ".len()..];
            let (skipped, rest) = number(rest)?;
            let rest = rest.strip_prefix(b" chars")?;
            let close = memchr::memchr(b')', rest)?;
            // The remark itself holds one pair of brackets.
            let close = match memchr::memchr(b'(', &rest[..close]) {
                None => close,
                Some(_) => close + 1 + memchr::memchr(b')', &rest[close + 1..])?,
            };
            let tail = &rest[close + 1..];
            let tail = tail.strip_prefix(b" ...").unwrap_or(tail);
            let head = &text[..at];
            return Some(Self { head: head.strip_suffix(b"... ").unwrap_or(head), skipped, tail });
        }
        let body = text.strip_suffix(b" chars)")?;
        let at = memmem::rfind(body, b"(truncated ")?;
        let (skipped, rest) = number(&body[at + b"(truncated ".len()..])?;
        let head = text[..at].strip_suffix(b" ").unwrap_or(&text[..at]);
        let head = head.strip_suffix(b"...").unwrap_or(head);
        rest.is_empty().then_some(Self { head, skipped, tail: b"" })
    }
}

/// A number at the start of `text`, and what follows.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let digits = std::str::from_utf8(&text[..end]).ok()?;
    let number: u64 = digits.parse().ok()?;
    // No text has more characters than this.
    (number <= u64::from(u32::MAX)).then_some((number, &text[end..]))
}
