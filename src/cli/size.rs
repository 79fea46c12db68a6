//! `tonnage size`: the smallest fleet that meets every target.

use super::Outcome;
use super::progress::{Extent, with_progress};
use super::scenario::{ScenarioArgs, help, show};
use crate::diag::Result;
use crate::fleet::Progress;
use crate::sizing::search::Search;

/// Arguments of `tonnage size`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = help())]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let case = args.scenario.load()?;
    let progress = Progress::default();
    let extent = Extent::of(&case);
    let search = with_progress(&extent, "looking for the smallest fleet", &progress, || {
        Search::run(case.scenario.max_replicas, |replicas| {
            let run = case.run(replicas, &progress)?;
            Ok(case.judge(&run))
        })
    })?;
    show(|out| args.scenario.format().size(&case, &search, out))?;
    Ok(if search.smallest.is_some() { Outcome::Met } else { Outcome::NotMet })
}
