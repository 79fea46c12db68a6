//! Reader and writer of the canonical trace: CSV, plain, `.gz` or `.zst`.
//!
//! [`Reader`] yields shared contexts and sessions in the order of the rows, one at a time, each
//! checked against the rules of [`crate::trace::check`]. [`Writer`] takes the same items, applies
//! the same rules, and leaves no half-written file behind. `docs/trace.md` describes the form.
//!
//! ```
//! use tonnage::trace::canonical::Reader;
//! use tonnage::trace::record::Item;
//!
//! let text = "\
//! session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,kept_tokens,\
//! prompt_tokens,output_tokens,tools,status
//! s1,0,0,,0,user,0,0,m,,,,,0,900,60,,ok
//! s1,1,4.5,0,1.5,tool,0,0,m,,,,0,960,1400,80,,ok
//! ";
//! let items: Result<Vec<Item>, _> = Reader::from_read(text.as_bytes(), "example")?.collect();
//! let Item::Session(session) = &items?[0] else { unreachable!() };
//! assert_eq!(session.calls[1].kept_tokens.0, 960);
//! # Ok::<(), tonnage::diag::Error>(())
//! ```

use std::io::Read;
use std::path::Path;

use crate::diag::Result;
use crate::trace::record::{AfterEvent, Cause, Finish, Item, Status, Trace};

mod input;
pub(crate) mod new_file;
pub(crate) mod new_text;
mod read;
mod row;
mod rows;
mod sink;
mod write;

pub use read::{Reader, can_be_read_again, display_name, is_standard_input};
pub use sink::Sink;
pub use write::{Compression, Writer};

/// Reads a whole trace into memory.
///
/// # Errors
/// If the file cannot be read or breaks a rule; the error names the place.
pub fn read_all(path: &Path) -> Result<Trace> {
    collect(Reader::open(path)?)
}

/// Reads a whole trace from anywhere; `display_name` stands for the file in errors.
///
/// # Errors
/// As for [`read_all`].
pub fn read_from(reader: impl Read + Send + 'static, display_name: &str) -> Result<Trace> {
    collect(Reader::from_read(reader, display_name)?)
}

fn collect(reader: Reader) -> Result<Trace> {
    let mut trace = Trace::default();
    for item in reader {
        match item? {
            Item::Context(context) => trace.contexts.push(context),
            Item::Session(session) => trace.sessions.push(session),
        }
    }
    Ok(trace)
}

/// Defines the columns, in the order in which they are written.
macro_rules! columns {
    ($($column:ident = $name:literal,)*) => {
        /// A column of the file form.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Column {
            $($column,)*
        }

        impl Column {
            /// All of them, in the order in which they are written.
            const ALL: &[Self] = &[$(Self::$column,)*];

            /// Its name in the header.
            const fn name(self) -> &'static str {
                match self {
                    $(Self::$column => $name,)*
                }
            }
        }
    };
}

columns! {
    Session = "session",
    Call = "call",
    At = "at_s",
    After = "after",
    Gap = "gap_s",
    Cause = "cause",
    Turn = "turn",
    Lane = "lane",
    Model = "model",
    Tenant = "tenant",
    User = "user",
    Profile = "profile",
    Base = "base",
    Kept = "kept_tokens",
    Prompt = "prompt_tokens",
    Output = "output_tokens",
    Tools = "tools",
    Status = "status",
    Finish = "finish",
    Priority = "priority",
    Key = "key",
    Stream = "stream",
    MaxTokens = "max_tokens",
    Retries = "retries",
    SeenCached = "seen_cached",
    SeenTtft = "seen_ttft_s",
    SeenDuration = "seen_duration_s",
}

impl Column {
    /// Whether a file may leave the column out.
    const fn optional(self) -> bool {
        self as usize >= Self::Finish as usize
    }
}

/// The words of an enumerated column.
pub(crate) trait Words: Copy + Eq + 'static {
    /// Every value with its word.
    const WORDS: &[(&'static str, Self)];

    /// The place of a value among them.
    fn place(self) -> usize {
        // Every value has its word, so the first is never a stand-in.
        Self::WORDS.iter().position(|(_, value)| *value == self).unwrap_or_default()
    }

    /// The word of a value.
    fn word(self) -> &'static str {
        Self::WORDS[self.place()].0
    }
}

impl Words for Cause {
    const WORDS: &[(&'static str, Self)] = &[
        ("user", Self::User),
        ("tool", Self::Tool),
        ("subagent", Self::Subagent),
        ("retry", Self::Retry),
    ];
}

impl Words for Status {
    const WORDS: &[(&'static str, Self)] =
        &[("ok", Self::Ok), ("failed", Self::Failed), ("aborted", Self::Aborted)];
}

impl Words for Finish {
    const WORDS: &[(&'static str, Self)] = &[("stop", Self::Stop), ("length", Self::Length)];
}

impl Words for bool {
    const WORDS: &[(&'static str, Self)] = &[("true", true), ("false", false)];
}

/// The mark behind a call number in `after`.
const fn mark(event: AfterEvent) -> &'static str {
    match event {
        AfterEvent::Finished => "",
        AfterEvent::Dispatched => "d",
    }
}

/// What starts the name of a shared context where a session or a call could stand.
const SHARED_MARK: char = '@';

#[cfg(test)]
mod tests;
