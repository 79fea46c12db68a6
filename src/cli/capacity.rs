//! `tonnage capacity`: the load that a fleet carries, and where its hit rate bends.

use super::Outcome;
use super::progress::{Extent, with_progress};
use super::scenario::{FormatArgs, ScenarioArgs, help, show};
use crate::diag::Result;
use crate::fleet::Progress;
use crate::sizing::capacity::Capacity;
use crate::sizing::case::Case;
use crate::sizing::replicates::Replicates;

/// Arguments of `tonnage capacity`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = help())]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Run each load under so many seeds, every one of which must meet the targets: size.seeds
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
    let trace = source.read()?;
    let seeds = scenario.seeds;
    let targets = args.scenario.targets();
    let case = written.case(scenario, &source, &trace)?;
    let replicates =
        Replicates::of(case, seeds, |case, scenario| case.sibling(scenario, &trace, targets))?;
    let progress = Progress::default();
    let label = "looking for the largest load";
    let capacity = with_progress(&Extent::of(replicates.case()), label, &progress, || {
        let sibling = |case: &Case, scenario| case.sibling(scenario, &trace, targets);
        Capacity::find(&replicates, &sibling, &progress)
    })?;
    show(|out| args.form.format().capacity(&replicates, &capacity, out))?;
    Ok(if capacity.carried > 0 { Outcome::Met } else { Outcome::NotMet })
}
