//! `tonnage size`: the smallest fleet that meets every target, among all candidates.

use std::path::PathBuf;

use super::progress::{Extent, with_progress};
use super::replaced::refuse_own_outputs;
use super::scenario::{FormatArgs, ScenarioArgs, VaryArgs, Written, help, show};
use super::{Outcome, plot};
use crate::config::vary::Axis;
use crate::diag::Result;
use crate::fleet::Progress;
use crate::report::plot::Figure;
use crate::sizing::around::Around;
use crate::sizing::bands::Bands;
use crate::sizing::candidates::{self, Comparison, Refused, Sized};
use crate::sizing::case::Case;
use crate::sizing::replicates::Replicates;
use crate::sizing::search::Search;

/// Arguments of `tonnage size`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = help())]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    #[command(flatten)]
    vary: VaryArgs,
    /// Run each fleet under so many seeds, every one of which must meet the targets: size.seeds
    #[arg(long, value_name = "N")]
    seeds: Option<u32>,
    /// Also draw the sizes around the answer: under which every target is met, and every target's
    /// value over its bound; a file that ends in .svg or .png, or in .csv for the points; may be
    /// given again
    #[arg(long, value_name = "FILE")]
    plot: Vec<PathBuf>,
    #[command(flatten)]
    form: FormatArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    // Names that cannot be drawn to are refused before anything is simulated.
    plot::check(&args.plot)?;
    let seeds = args.seeds.map(|seeds| format!("size.seeds={seeds}"));
    let written = args.scenario.written(seeds.as_slice())?;
    let axes = written.axes(&args.vary)?;
    let (ready, refused) = args.ready(&written, &axes)?;
    if !args.plot.is_empty() {
        for (_, replicates) in &ready {
            Around::check(&replicates.case().scenario)?;
            Figure::check_targets(&replicates.case().targets)?;
        }
    }
    let progress = Progress::default();
    let mut comparison = Comparison { sized: Vec::new(), refused };
    let of = ready.len();
    for (number, (name, replicates)) in ready.into_iter().enumerate() {
        let label = match of {
            1 => "looking for the smallest fleet".to_owned(),
            _ => format!("candidate {} of {of}", number + 1),
        };
        let most = replicates.case().scenario.max_replicas;
        let search = with_progress(&Extent::of(replicates.case()), &label, &progress, || {
            Search::run(&replicates, most, &progress)
        })?;
        comparison.sized.push(Sized { name, replicates, search, bands: None });
    }
    comparison.sort();
    if let Some(best) = comparison.sized.first_mut() {
        let (replicates, search) = (&best.replicates, &best.search);
        let extent = Extent::of(replicates.case());
        let bands = with_progress(&extent, "bands of the answer", &progress, || {
            Bands::of(search, replicates, &progress)
        })?;
        best.bands = Some(bands);
    }
    if let Some(best) = comparison.sized.first().filter(|_| !args.plot.is_empty()) {
        let (replicates, search) = (&best.replicates, &best.search);
        let extent = Extent::of(replicates.case());
        let around = with_progress(&extent, "sizes of the plot", &progress, || {
            Around::of(search, replicates, &progress)
        })?;
        plot::write(&Figure::of_sizes(best, &around), &args.plot)?;
    }
    show(|out| args.form.format().size(&comparison, out))?;
    let met = comparison.sized.iter().any(|sized| sized.search.smallest.is_some());
    Ok(if met { Outcome::Met } else { Outcome::NotMet })
}

/// The candidates that can run by name, each under every seed, and the others.
type Ready = (Vec<(String, Replicates)>, Vec<Refused>);

impl Args {
    fn ready(&self, written: &Written<'_>, axes: &[Axis]) -> Result<Ready> {
        let targets = self.scenario.targets();
        let scenarios = candidates::scenarios(axes, |more| written.scenario(more))?;
        let (mut ready, mut refused) = (Vec::new(), Vec::new());
        let mut first: Option<Case> = None;
        let mut read = None;
        for (combination, scenario) in scenarios {
            let name = candidates::name(axes, &combination);
            let scenario = match scenario {
                Ok(scenario) => scenario,
                Err(error) => {
                    refused.push(Refused { name, reason: error.message().to_owned() });
                    continue;
                }
            };
            candidates::check(axes, scenario.one_price)?;
            let (source, trace) = match &read {
                Some(read) => read,
                None => {
                    let source = written.source(&scenario)?;
                    refuse_own_outputs(&self.plot, &written.inputs(&source))?;
                    let trace = source.read()?;
                    read.insert((source, trace))
                }
            };
            let seeds = scenario.seeds;
            let case = match &first {
                Some(first) => first.sibling(scenario, trace, targets)?,
                None => written.case(scenario, source, trace)?,
            };
            if first.is_none() {
                first = Some(case.sibling(case.scenario.clone(), trace, targets)?);
            }
            let replicates = Replicates::of(case, seeds, |case, scenario| {
                case.sibling(scenario, trace, targets)
            })?;
            ready.push((name, replicates));
        }
        Ok((ready, refused))
    }
}
