//! `tonnage explain`: where task time goes, which resource binds, and what each lever would change.

use std::sync::atomic::Ordering;

use super::Outcome;
use super::progress::{Extent, with_progress};
use super::scenario::{FormatArgs, ScenarioArgs, VaryArgs, help, show};
use crate::diag::Result;
use crate::fleet::Progress;
use crate::sizing::case::Case;
use crate::sizing::explain::{Explanation, Lever};
use crate::sizing::replicates::Replicates;

/// Arguments of `tonnage explain`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = help())]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    #[command(flatten)]
    vary: VaryArgs,
    /// Run each fleet under so many seeds: size.seeds
    #[arg(long, value_name = "N")]
    seeds: Option<u32>,
    #[command(flatten)]
    form: FormatArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let seeds = args.seeds.map(|seeds| format!("size.seeds={seeds}"));
    let written = args.scenario.written(seeds.as_slice())?;
    let (scenario, source) = written.as_is()?;
    written.without_intervals(&scenario)?;
    let mut levers = Lever::of(&scenario);
    levers.extend(Lever::of_axes(&written.axes(&args.vary)?, &scenario)?);
    let trace = source.read()?;
    let targets = args.scenario.targets();
    let (seeds, replicas) = (scenario.seeds, scenario.replicas);
    let sibling = |case: &Case, scenario| case.sibling(scenario, &trace, targets);
    let replicates = Replicates::of(written.case(scenario, &source, &trace)?, seeds, sibling)?;

    let progress = Progress::default();
    let extent = Extent::of(replicates.case());
    let base = with_progress(&extent, "the fleet as it is", &progress, || {
        replicates.judge(replicas, &progress)
    })?;
    // Levers change how long calls take, not by much how many there are.
    let calls = progress.calls.swap(0, Ordering::Relaxed);
    let extent = Extent::Calls(calls.saturating_mul(levers.len() as u64));
    let moved = |lever: &Lever| {
        let scenario = written.scenario(std::slice::from_ref(&lever.assignment))?;
        written.without_intervals(&scenario)?;
        let case = replicates.case().sibling(scenario, &trace, targets)?;
        Replicates::of(case, seeds, sibling)
    };
    let explanation = with_progress(&extent, "every lever by itself", &progress, || {
        Explanation::of(base, &replicates, levers, moved, &progress)
    });
    show(|out| args.form.format().explain(&replicates, &explanation, out))?;
    Ok(Outcome::Met)
}
