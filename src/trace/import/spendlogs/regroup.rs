//! Puts calls together whose ids do not: one caller's at a time, in order of start.

use std::collections::{BTreeMap, BTreeSet};

use super::row::{Row, Standing};
use super::time::{Micros, span};
use crate::units::Span;

/// The sessions of one caller that a call may still join.
#[derive(Debug)]
pub(super) struct Callers {
    gap: Span,
    calls_max: u64,
    caller: Option<u64>,
    next: u64,
    open: BTreeMap<u64, Open>,
    /// Those whose last counted call has not ended, by its end.
    running: BTreeSet<(Micros, u64)>,
    /// The others, by prompt and end.
    ended: BTreeSet<(u64, Micros, u64)>,
    /// All, by the end of their last call.
    by_last: BTreeSet<(Micros, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    session: Standing,
    prompt: u64,
    end: Micros,
    last_end: Micros,
    calls: u64,
}

impl Callers {
    /// None yet. Pauses of up to `gap` are bridged; a session has at most `calls_max` calls.
    pub(super) fn new(gap: Span, calls_max: u64) -> Self {
        Self {
            gap,
            calls_max,
            caller: None,
            next: 0,
            open: BTreeMap::new(),
            running: BTreeSet::new(),
            ended: BTreeSet::new(),
            by_last: BTreeSet::new(),
        }
    }

    /// The session that a call joins: the one with the longest prompt below its own, among those
    /// that have ended, not too long ago. A call without counted tokens goes to the one used last.
    /// Where there is none, the call begins a session, whose name it is.
    ///
    /// Calls come by caller, and in order of start.
    pub(super) fn session(&mut self, row: &Row) -> Standing {
        if self.caller.replace(row.caller) != Some(row.caller) {
            self.open.clear();
            self.running.clear();
            self.ended.clear();
            self.by_last.clear();
        }
        self.advance(row.start);
        let counted = row.is_counted();
        let found = if counted {
            self.ended.range(..(row.prompt, Micros::MIN, 0)).next_back().map(|&(.., id)| id)
        } else {
            self.by_last.last().map(|&(_, id)| id)
        };
        let id = found.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        let fresh = Open {
            session: row.standing(),
            prompt: 0,
            end: row.start,
            last_end: row.end,
            calls: 0,
        };
        let mut open = self.remove(id).unwrap_or(fresh);
        open.last_end = open.last_end.max(row.end);
        open.calls += 1;
        if counted {
            (open.prompt, open.end) = (row.prompt, row.end);
        }
        if open.calls < self.calls_max {
            self.insert(id, open, row.start);
        }
        open.session
    }

    /// Lets go of those that are too old, and notices who has ended.
    fn advance(&mut self, now: Micros) {
        while let Some(&(last_end, id)) = self.by_last.first()
            && span(last_end, now) > self.gap
        {
            self.remove(id);
        }
        while let Some(&(end, id)) = self.running.first()
            && end <= now
        {
            self.running.pop_first();
            self.ended.extend(self.open.get(&id).map(|open| (open.prompt, end, id)));
        }
    }

    fn insert(&mut self, id: u64, open: Open, now: Micros) {
        if open.end <= now {
            self.ended.insert((open.prompt, open.end, id));
        } else {
            self.running.insert((open.end, id));
        }
        self.by_last.insert((open.last_end, id));
        self.open.insert(id, open);
    }

    fn remove(&mut self, id: u64) -> Option<Open> {
        let open = self.open.remove(&id)?;
        self.ended.remove(&(open.prompt, open.end, id));
        self.running.remove(&(open.end, id));
        self.by_last.remove(&(open.last_end, id));
        Some(open)
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::answered;
    use super::*;

    /// Which call begins the session of each, given as (start, prompt), by their starts.
    fn sessions(calls: &[(i64, u64)], calls_max: u64) -> Vec<i64> {
        let mut callers = Callers::new(Span::from_micros(100), calls_max);
        let session = |&(start, prompt): &_| callers.session(&answered(start, prompt, 1)).start;
        calls.iter().map(session).collect()
    }

    #[test]
    fn a_call_joins_the_longest_prompt_below_its_own_that_has_ended() {
        assert_eq!(sessions(&[(0, 10), (2, 20), (4, 15), (6, 18), (8, 30)], 9), [0, 0, 4, 4, 0]);
        assert_eq!(sessions(&[(0, 10), (2, 10)], 9), [0, 2], "an equal prompt is another's");
        assert_eq!(sessions(&[(0, 10), (102, 20), (150, 30)], 9), [0, 102, 102], "too late");
        assert_eq!(sessions(&[(0, 10), (2, 20), (4, 30), (6, 40)], 2), [0, 0, 4, 4], "full");
    }
}
