//! Single calls and tasks as CSV: everything the run recorded, the warm-up included, with a column
//! that says what the figures are made of.
//!
//! A row is written when its call or task ends, by hand into a buffer; full buffers go to whoever
//! writes the files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::diag::Result;
use crate::fleet::Progress;
use crate::fleet::observer::{About, Observer};
use crate::observe::records::{CallOutcome, CallRecord, Place, TaskRecord, TurnRecord};
use crate::units::Time;

mod files;
mod row;

pub use files::Files;
use row::Row;

/// The header of the table of calls.
const CALLS: &str = "play,session,call,lane,model,replica,outcome,in_window,dispatched_s,queued_s,\
    scheduled_s,first_token_s,last_token_s,ended_s,prompt_tokens,cached_tokens,\
    infinite_cache_tokens,prefilled_tokens,output_tokens,preemptions,tokens_lost,compacted,\
    refusals,places,sent_s,attempts,evicted_tokens,under_way_tokens,elsewhere_tokens,\
    gone_tokens,uncached_tokens\n";
/// What it has more with pools.
const POOLS: &str = ",pool,served_by\n";
/// The header of the table of tasks.
const TASKS: &str = "play,session,in_window,failed,started_s,ended_s,session_s,task_s,task_llm_s,\
    stretch,turns,calls\n";

/// Bytes after which a buffer is handed on.
const CHUNK: usize = 1 << 18;
/// No row is longer, the names in it apart.
const ROW: usize = 1 << 10;

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// A row per call.
    Calls,
    /// A row per task.
    Tasks,
}

/// Writes a row for every call and task, in the order in which they end; at one instant in the
/// order in which their sessions started.
pub struct Rows {
    calls: Row,
    tasks: Row,
    /// The instant of the last rows of each.
    calls_at: Instant,
    tasks_at: Instant,
    files: Files,
    progress: Arc<Progress>,
    /// The names of the fleet's pools, if there are any.
    pools: Vec<String>,
}

impl Rows {
    /// Both tables with nothing but their headers. If they cannot be written on, the run of this
    /// progress is stopped.
    #[must_use]
    pub fn new(files: Files, progress: Arc<Progress>) -> Self {
        let with_header = |header: &str| {
            let mut row = Row::new(vec![0; CHUNK + 4 * ROW]);
            row.put(header.as_bytes());
            row
        };
        let (calls_at, tasks_at) = (Instant::before_all(), Instant::before_all());
        let (calls, tasks) = (with_header(CALLS), with_header(TASKS));
        Self { calls, tasks, calls_at, tasks_at, files, progress, pools: Vec::new() }
    }

    /// The same with columns for the pools of these names, if there are any.
    #[must_use]
    pub fn with_pools(mut self, pools: Vec<String>) -> Self {
        if !pools.is_empty() {
            self.calls.take_back();
            self.calls.put(POOLS.as_bytes());
        }
        self.pools = pools;
        self
    }

    /// Writes what is left and gives both files their names.
    ///
    /// # Errors
    /// If anything could not be written; the files then have no names.
    pub fn finish(mut self) -> Result<()> {
        self.calls_at.sort(&mut self.calls);
        self.tasks_at.sort(&mut self.tasks);
        self.files.write(Table::Calls, self.calls.into_bytes());
        self.files.write(Table::Tasks, self.tasks.into_bytes());
        self.files.commit()
    }

    /// An instant is over: its rows are put in order, and full buffers are handed on.
    fn hand_on(&mut self, table: Table) {
        let (rows, instant) = match table {
            Table::Calls => (&mut self.calls, &self.calls_at),
            Table::Tasks => (&mut self.tasks, &self.tasks_at),
        };
        instant.sort(rows);
        if rows.len() < CHUNK {
            return;
        }
        let (mut empty, goes_on) = self.files.write(table, std::mem::take(rows).into_bytes());
        empty.resize(CHUNK + 4 * ROW, 0);
        *rows = Row::new(empty);
        if !goes_on {
            self.progress.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Observer for Rows {
    fn call(&mut self, call: &CallRecord, about: &About<'_>) {
        if self.calls_at.at != call.ended {
            self.hand_on(Table::Calls);
            self.calls_at.begins(call.ended);
        }
        self.calls_at.add(call.play, self.calls.len());
        self.calls.call(call, about, &self.pools);
    }

    fn turn(&mut self, _: &TurnRecord, _: &About<'_>) {}

    fn task(&mut self, task: &TaskRecord, about: &About<'_>) {
        if self.tasks_at.at != task.ended {
            self.hand_on(Table::Tasks);
            self.tasks_at.begins(task.ended);
        }
        self.tasks_at.add(task.play, self.tasks.len());
        self.tasks.task(task, about);
    }

    fn wants_alone(&self) -> bool {
        true
    }
}

/// The rows of one instant, of which none has been handed on.
#[derive(Debug)]
struct Instant {
    at: Time,
    /// By row: the number of its session, and where it begins.
    rows: Vec<(u32, usize)>,
    is_sorted: bool,
}

impl Instant {
    /// No row has been written.
    fn before_all() -> Self {
        Self { at: Time::MAX, rows: Vec::new(), is_sorted: true }
    }

    /// Another instant begins.
    fn begins(&mut self, at: Time) {
        self.at = at;
        self.rows.clear();
        self.is_sorted = true;
    }

    /// The last row, which begins there, is of this session.
    fn add(&mut self, play: u32, from: usize) {
        self.is_sorted &= self.rows.last().is_none_or(|(before, _)| *before <= play);
        self.rows.push((play, from));
    }

    /// Puts the rows in the order of their sessions. They nearly always are.
    fn sort(&self, table: &mut Row) {
        if self.is_sorted {
            return;
        }
        let from = self.rows.first().map_or(0, |(_, from)| *from);
        let ends = self.rows[1..].iter().map(|(_, from)| *from).chain([table.len()]);
        let mut rows: Vec<_> =
            self.rows.iter().zip(ends).map(|(&(play, from), end)| (play, from..end)).collect();
        rows.sort_by_key(|(play, _)| *play);
        let table = table.written();
        let sorted: Vec<u8> = rows.into_iter().flat_map(|(_, row)| &table[row]).copied().collect();
        table[from..].copy_from_slice(&sorted);
    }
}

impl Row {
    fn call(&mut self, call: &CallRecord, about: &About<'_>, pools: &[String]) {
        let class = about.plan.class(call.call);
        self.number(call.play.into());
        self.text(&about.plan.id);
        self.number(call.call.into());
        self.number(about.plan.lane(call.call).into());
        self.text(about.names.models.get(class.model as usize).map_or("", |name| name));
        self.some(call.replica.map(|replica| replica.0.into()));
        self.word(match call.outcome {
            CallOutcome::Completed => "completed",
            CallOutcome::Rejected => "rejected",
            CallOutcome::Refused => "refused",
            CallOutcome::RecordedFailure => "recorded_failure",
        });
        self.truth(about.window.holds(call.ended));
        self.time(call.dispatched);
        // A call that reached no engine has no times there.
        for time in [call.queued, call.scheduled, call.first_token, call.last_token] {
            match call.outcome {
                CallOutcome::Completed => self.time(time),
                _ => self.word(""),
            }
        }
        self.time(call.ended);
        for tokens in [call.prompt, call.cached, call.ceiling, call.prefilled, call.output] {
            self.number(tokens.0);
        }
        self.number(call.preemptions.into());
        self.number(call.lost.0);
        self.truth(call.compacted);
        self.number(call.refusals.into());
        self.places(call.place);
        match call.attempts {
            0 => self.word(""),
            _ => self.time(call.sent),
        }
        self.number(call.attempts.into());
        for tokens in call.missed.parts() {
            self.number(tokens.into());
        }
        if !pools.is_empty() {
            for pool in [call.pool, call.served_by] {
                self.word(&pools[usize::from(pool)]);
            }
        }
        self.end();
    }

    fn task(&mut self, task: &TaskRecord, about: &About<'_>) {
        self.number(task.play.into());
        self.text(&about.plan.id);
        self.truth(about.window.holds(task.ended));
        self.truth(task.failed);
        self.time(task.started);
        self.time(task.ended);
        self.span(task.session_span());
        self.span(task.task);
        self.span(task.task_llm);
        self.ratio(task.stretch());
        self.number(task.turns.into());
        self.number(task.calls.into());
        self.end();
    }

    fn time(&mut self, time: Time) {
        self.span(time - Time::ZERO);
    }

    fn places(&mut self, place: Place) {
        let before = self.len();
        for (_, name) in Place::ALL.iter().filter(|(kind, _)| place.is(*kind)) {
            if self.len() > before {
                self.put(b";");
            }
            self.put(name.as_bytes());
        }
        self.put(b",");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::Span;

    proptest! {
        #[test]
        fn numbers_and_names_are_written_as_by_the_csv_crate(
            number in any::<u64>(), short in 0u64..2_000, zeros in 0u32..10,
            name in "[a-z,\" é]{1,8}",
        ) {
            let span = Span(short * 10u64.pow(zeros));
            let mut row = Row::new(vec![0; 2 * ROW]);
            row.number(number);
            row.span(Span(number));
            row.span(span);
            row.text(&name);
            row.word("x");
            row.end();
            let mut writer = csv::Writer::from_writer(Vec::new());
            let number_text = number.to_string();
            let (long, span) = (Span(number).secs_text(), span.secs_text());
            writer.write_record([&number_text, &long, &span, &name, "x"]).unwrap();
            prop_assert_eq!(row.into_bytes(), writer.into_inner().unwrap());
        }
    }

    #[test]
    fn rows_of_an_instant_stand_in_the_order_of_their_sessions() {
        let (mut table, mut instant) = (Row::new(vec![0; 2 * ROW]), Instant::before_all());
        let rows = [(3, "c\n"), (1, "long\n"), (3, "d\n"), (0, "a\n"), (1, "b\n")];
        table.word("before");
        instant.begins(Time(5));
        for (play, row) in rows {
            instant.add(play, table.len());
            table.put(row.as_bytes());
        }
        instant.sort(&mut table);
        assert_eq!(String::from_utf8_lossy(table.written()), "before,a\nlong\nb\nc\nd\n");
        instant.begins(Time(6));
        instant.sort(&mut table);
        assert_eq!(table.len(), 20);
    }

    #[test]
    fn places_stand_with_semicolons_between() {
        let mut row = Row::new(vec![0; 2 * ROW]);
        row.places(Place::FIRST_OF_TURN.and(Place::TURN_BOUNDARY));
        row.places(Place::default());
        assert_eq!(row.written(), b"first_call;turn_boundary,,");
    }
}
