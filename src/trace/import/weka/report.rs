//! What an import of agent sessions found, kept and left out.

use std::collections::BTreeMap;

use crate::diag::Warning;
use crate::trace::import::{self, BadRows, Count};

/// What an import of agent sessions found, kept and left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files read.
    pub files: u64,
    /// Lines (or, of the original form, files) that should hold a session.
    pub lines: u64,
    /// Lines that could not be used.
    pub bad: BadRows,
    /// Sessions left out because `only` does not name them.
    pub not_asked: u64,
    /// Sessions left out because a call's prompt and output are too long.
    pub too_long_context: u64,
    /// Sessions left out because they span too much time.
    pub too_long_span: u64,
    /// Sessions kept.
    pub sessions: u64,
    /// Their calls.
    pub calls: u64,
    /// Calls of the main agents among them.
    pub main_calls: u64,
    /// Calls whose server time is an estimate.
    pub estimated: u64,
    /// Calls that ran beside an earlier one of their lane.
    pub parallel: u64,
    /// Subagents that a later call waits for.
    pub joined_lanes: u64,
    /// Subagents for which nobody waited when recorded.
    pub async_lanes: u64,
    /// Subagents whose result came back when their spawner made no further call.
    pub unused_lanes: u64,
    /// Subagent entries without a call.
    pub empty_lanes: u64,
    /// Subagents that lasted longer than their session had; they begin with it.
    pub early_lanes: u64,
    /// Lanes whose calls the file gives out of order.
    pub reordered_lanes: u64,
    /// Calls with no output.
    pub no_output: u64,
    /// Calls whose last whole block has no id.
    pub short: u64,
    /// Calls that repeat their base's output.
    pub outputs_kept: u64,
    /// Shared contexts declared.
    pub contexts: u64,
    /// Calls in each turn: a run of the main agent's calls up to one that did not stop to call a
    /// tool.
    pub calls_per_turn: Vec<u64>,
    /// Calls by model where the list of models does not name it.
    pub unlisted_models: BTreeMap<String, u64>,
}

impl Report {
    /// The `share` quantile of the calls per turn: the value at that share of the sorted list, not
    /// interpolated. `None` without turns.
    #[must_use]
    pub fn calls_per_turn_at(&self, share: f64) -> Option<u64> {
        let mut sorted = self.calls_per_turn.clone();
        sorted.sort_unstable();
        let position = (share * sorted.len() as f64) as usize;
        sorted.get(position.min(sorted.len().saturating_sub(1))).copied()
    }

    /// Mean calls per turn; `None` without turns.
    #[must_use]
    pub fn calls_per_turn_mean(&self) -> Option<f64> {
        let turns = self.calls_per_turn.len();
        (turns > 0).then(|| self.calls_per_turn.iter().sum::<u64>() as f64 / turns as f64)
    }

    /// What must be known before the trace is trusted.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let counted = [
            (self.bad.count(), "lines could not be used and were left out"),
            (self.not_asked, "sessions were not asked for and left out"),
            (self.too_long_context, "sessions with a longer context were left out"),
            (self.too_long_span, "sessions of a longer span were left out"),
            (self.estimated, "calls without recorded server time: it was estimated"),
            (self.parallel, "calls ran beside an earlier call of their agent"),
            (self.unused_lanes, "subagents ended with no later call to take up their result"),
            (self.empty_lanes, "subagent entries had no calls"),
            (self.early_lanes, "subagents lasted longer than their session: they begin with it"),
            (self.reordered_lanes, "agents had their calls out of order: sorted by time"),
            (self.no_output, "calls have no output"),
            (self.short, "calls have no id for their last whole block"),
        ];
        let some = counted.iter().filter(|(count, _)| *count > 0);
        some.map(|(count, what)| format!("{count} {what}")).collect()
    }

    /// The same in the form that all formats share.
    #[must_use]
    pub fn common(&self) -> import::Report {
        let mut figures = vec![
            ("calls", format!("{}, {} of main agents", self.calls, self.main_calls)),
            ("calls per turn", self.turns()),
            ("server time", format!("estimated for {} calls", self.estimated)),
            ("parallel calls", self.parallel.to_string()),
            ("subagents", self.subagents()),
            ("outputs", format!("{} calls repeat their base's output", self.outputs_kept)),
            ("without output", format!("{} calls", self.no_output)),
            ("shared contexts", self.contexts.to_string()),
        ];
        if self.reordered_lanes > 0 {
            let text = format!("calls of {} agents, sorted by time", self.reordered_lanes);
            figures.push(("out of order", text));
        }
        if self.short > 0 {
            let text = format!("last whole block without an id in {} calls", self.short);
            figures.push(("blocks", text));
        }
        let unlisted = self.unlisted_models.iter().map(|(model, calls)| {
            Warning(format!("{calls} calls of model `{model}`, which their session does not list"))
        });
        import::Report {
            unit: "sessions",
            files: self.files,
            read: self.lines,
            kept: self.sessions,
            bad: self.bad.clone(),
            left_out: vec![
                Count::new(self.not_asked, "not named by --only"),
                Count::new(self.too_long_context, "above --max-context"),
                Count::new(self.too_long_span, "above --max-span-s"),
            ],
            figures,
            assumed: Vec::new(),
            warnings: unlisted.collect(),
        }
    }

    fn subagents(&self) -> String {
        let counted = [
            (self.joined_lanes, "joined"),
            (self.async_lanes, "asynchronous"),
            (self.unused_lanes, "with no later call"),
            (self.empty_lanes, "without calls"),
            (self.early_lanes, "older than their session"),
        ];
        let always = 2;
        let shown = counted.iter().enumerate().filter(|(n, (count, _))| *n < always || *count > 0);
        shown.map(|(_, (count, what))| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
    }

    /// Turns as the reference figures of the public traces count them.
    fn turns(&self) -> String {
        let Some(mean) = self.calls_per_turn_mean() else { return "no turns".to_owned() };
        let points = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
        let points = points.iter().filter_map(|(name, share)| {
            self.calls_per_turn_at(*share).map(|calls| format!("{name} {calls}"))
        });
        let points: Vec<String> = points.collect();
        format!("mean {mean:.3}, {} over {} turns", points.join(", "), self.calls_per_turn.len())
    }
}
