//! How far the generator is, on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};

use crate::units::Span;
use crate::workload::generate::Generated;
use crate::workload::people::Population;

/// A bar over the sessions, or over the time of the trace.
pub(super) struct Progress {
    bar: ProgressBar,
    by_time: bool,
}

impl Progress {
    pub(super) fn new(population: &Population) -> Self {
        let (length, by_time) = match population {
            Population::Sessions { sessions, .. } => (*sessions, false),
            Population::Developers { days, .. } => (u64::from(*days) * 86_400, true),
        };
        // It draws to standard error, and nothing where that is no terminal.
        let bar = ProgressBar::new(length);
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} % {elapsed}");
        Self {
            bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
            by_time,
        }
    }

    pub(super) fn seen(&self, item: &Generated) {
        let Generated::Session(made) = item else { return };
        match self.by_time {
            true => {
                let at = made.session.calls.first().map_or(Span::ZERO, |call| call.at);
                self.bar.set_position(at.secs() as u64);
            }
            false => self.bar.inc(1),
        }
    }

    pub(super) fn done(&self) {
        self.bar.finish_and_clear();
    }
}
