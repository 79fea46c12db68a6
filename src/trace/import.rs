//! Importers: one file a format, each turning recorded traffic into canonical sessions.
//!
//! A format is a [`Read`] function: it takes a [`Job`] (files and options), puts contexts and
//! sessions into a [`Sink`](crate::trace::canonical::Sink) in the order of a trace, and answers
//! with a [`Done`] (sidecar and report). [`Format`] lists them with their names and the options
//! they heed; a new format is one file and one entry there. SpendLogs has an interface of its own.
//!
//! All of them treat rows that cannot be used alike: the row is counted, the first few are shown
//! with file, line and reason, and the import fails unless it was asked to [skip](BadRows) them.

use crate::diag::{Error, Result};
use crate::trace::record::{Base, Call, Cause, Finish, Name, Status};
use crate::units::{Span, Tokens};

pub mod agentic_mooncake;
pub mod azure;
pub mod bailian;
mod blocks;
pub mod burstgpt;
mod chain;
pub mod detect;
mod flat;
mod format;
pub mod inference_lab;
mod instant;
mod job;
mod lines;
pub mod mini_swe;
pub mod mooncake;
mod options;
pub mod prefix_groups;
mod report;
pub mod spendlogs;
mod table;
pub mod tracelab;
pub mod weka;

pub use format::Format;
pub use job::{Done, Job, Progress, Read};
pub use options::{Options, Outputs, Setting};
pub use report::{Count, Report};

/// A call of which no more is known: a person's, that waits for nothing and repeats nothing.
fn plain_call(at: Span, prompt: Tokens, output: Tokens) -> Call {
    let nobody = Name::from("");
    Call {
        at,
        after: Vec::new(),
        gap: Span::ZERO,
        cause: Cause::User,
        turn: 0,
        lane: 0,
        model: Name::clone(&nobody),
        tenant: Name::clone(&nobody),
        user: Name::clone(&nobody),
        profile: nobody,
        base: Base::None,
        kept_tokens: Tokens::ZERO,
        prompt_tokens: prompt,
        output_tokens: output,
        tools: None,
        status: Status::Ok,
        finish: Finish::Stop,
        priority: 0,
        key: None,
        stream: None,
        max_tokens: None,
        retries: 0,
        seen_cached: None,
        seen_ttft: None,
        seen_duration: None,
    }
}

/// How many bad rows are shown; the rest is only counted.
const SHOWN_ROWS_MAX: usize = 5;

/// Rows that could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadRows {
    count: u64,
    shown: Vec<Error>,
}

impl BadRows {
    /// Counts a row, with what is wrong with it and where it stands.
    pub fn add(&mut self, error: Error) {
        self.count += 1;
        if self.shown.len() < SHOWN_ROWS_MAX {
            self.shown.push(error);
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first few of them.
    #[must_use]
    pub fn shown(&self) -> &[Error] {
        &self.shown
    }

    /// Refuses the import if there is any bad row and they are not to be skipped.
    ///
    /// # Errors
    /// The first bad row, with the next few as help.
    pub fn settle(&self, skip: bool) -> Result<()> {
        let Some((first, others)) = self.shown.split_first() else { return Ok(()) };
        if skip {
            return Ok(());
        }
        let mut error = others
            .iter()
            .fold(first.clone(), |error, other| error.help(format!("also bad: {other}")));
        if self.count > self.shown.len() as u64 {
            error = error.help(format!("{} bad rows in all", self.count));
        }
        Err(error.help("--skip-bad leaves bad rows out and counts them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_rows_stop_the_import_unless_they_are_skipped() {
        let mut bad = BadRows::default();
        assert_eq!(bad.settle(false), Ok(()));
        for line in 1..=7 {
            bad.add(Error::new("no").in_file("f").at_line(line));
        }
        assert_eq!(bad.settle(true), Ok(()));
        let text = bad.settle(false).unwrap_err().to_string();
        assert!(text.starts_with("f:1: no\n  help: also bad: f:2: no"), "{text}");
        assert!(text.contains("7 bad rows in all") && text.contains("--skip-bad"), "{text}");
        assert_eq!((bad.count(), bad.shown().len()), (7, 5));
    }
}
