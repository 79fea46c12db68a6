//! The trace's own figures as targets of the profile, so that `tonnage generate` reports on them.

use super::compare::{Comparison, Figures, Verdict};
use super::quantity::{Quantity, Share};
use crate::workload::profile::Mark;
use crate::workload::target::{At, Quantity as Wanted, Target, Wanted as Bounds};

/// How far off a target may be, as a share of it.
const WITHIN: f64 = 0.05;

/// Quantities whose figures become targets.
const QUANTITIES: [(Quantity, Wanted); 9] = [
    (Quantity::CallsPerSession, Wanted::CallsPerSession),
    (Quantity::TurnsPerSession, Wanted::TurnsPerSession),
    (Quantity::CallsPerTurn, Wanted::CallsPerTurn),
    (Quantity::First, Wanted::FirstPrompt),
    (Quantity::Prompt, Wanted::Prompt),
    (Quantity::TokensPerTurn, Wanted::TokensPerTurn),
    (Quantity::Output, Wanted::Output),
    (Quantity::GapTool, Wanted::ToolGap),
    (Quantity::GapUser, Wanted::UserGap),
];

const SHARES: [(Share, Wanted); 3] = [
    (Share::TotalRatio, Wanted::TotalRatio),
    (Share::Hit, Wanted::Hit),
    (Share::AgentStarted, Wanted::AgentStarted),
];

/// Targets from a comparison, in the order of their names; `source` says where they are from.
#[must_use]
pub fn targets(comparison: &Comparison, source: &str) -> Vec<Target> {
    let target = |quantity: Wanted, at, value: f64, within, unmet: Option<String>| Target {
        name: format!("{}_{}", quantity.name(), At::text(at)),
        quantity,
        at,
        wanted: Bounds::About { value, within },
        mark: Mark::Measured,
        source: source.to_owned(),
        unmet,
    };
    let mut targets = Vec::new();
    for row in &comparison.rows {
        let Some((_, quantity)) = QUANTITIES.iter().find(|(own, _)| *own == row.quantity) else {
            continue;
        };
        let Figures { p50, mean, .. } = row.trace;
        let unmet = unmet(row.verdict, row.why);
        let least = if row.quantity.is_count() { 1.0 } else { 0.0 };
        for (at, value, least) in [(At::Percentile(0.5), p50, least), (At::Mean, mean, 0.0)] {
            let within = (WITHIN * value).max(least);
            targets.push(target(*quantity, at, value, within, unmet.clone()));
        }
    }
    for row in &comparison.shares {
        let Some((_, quantity)) = SHARES.iter().find(|(own, _)| *own == row.share) else {
            continue;
        };
        let unmet = unmet(row.verdict, row.why);
        targets.push(target(*quantity, At::Total, row.trace, WITHIN * row.trace, unmet));
    }
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    targets
}

fn unmet(verdict: Verdict, why: Option<&str>) -> Option<String> {
    let why = why.unwrap_or("it was off in the check of the fit");
    (verdict == Verdict::Off).then(|| why.to_owned())
}
