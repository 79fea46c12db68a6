//! `tonnage replay`: simulate one fleet and show everything that was measured.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::progress::{Extent, with_progress};
use super::replaced::refuse_own_outputs;
use super::scenario::{FormatArgs, ScenarioArgs, help, show};
use super::{EXIT_INTERRUPTED, Outcome, plot};
use crate::diag::{Error, Result};
use crate::fleet::observer::Observer;
use crate::fleet::{Progress, Run};
use crate::observe::timeline::HitsOverTime;
use crate::report::csv::{Files, Rows};
use crate::report::plot::Figure;
use crate::report::prometheus::{self, Scrape};
use crate::sizing::case::Case;
use crate::sizing::tally::Tally;
use crate::trace::canonical::new_file::NewFile;
use crate::units::Blocks;

/// Arguments of `tonnage replay`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = help())]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    #[command(flatten)]
    form: FormatArgs,
    /// Also write a row per call and per task: calls.csv and tasks.csv in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also write what every engine's /metrics would show at the end of the run, in Prometheus'
    /// text form, under vLLM's names, and the gateway's under LiteLLM's
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Also draw the run over time, warm-up included: hit rate, KV use, calls that run and that
    /// wait; a file that ends in .svg or .png, or in .csv for the points; may be given again
    #[arg(long, value_name = "FILE")]
    plot: Vec<PathBuf>,
    /// Exit with 1 if a target is not met
    #[arg(long)]
    check: bool,
    /// Threads: 1 does everything on one, more read or make sessions and write rows beside the
    /// simulation, and simulate replicas that do not influence each other at once; the result is
    /// the same [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    threads: Option<u32>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    // Names that cannot be drawn to are refused before anything is read.
    args.plot.iter().try_for_each(|path| Figure::check_name(path).map(drop))?;
    let written = args.scenario.written(&[])?;
    let (scenario, source) = written.as_is()?;
    refuse_own_outputs(&args.outputs(), &written.inputs(&source))?;
    let progress = Arc::new(Progress::default());
    if !Case::can_stream(&scenario) {
        let case = written.case(scenario, &source, &source.read()?)?;
        args.note(&case);
        return args.held(case, &progress);
    }
    let repeated = source.repeated(&scenario)?;
    let case = written.stream(scenario.clone(), &source, repeated.as_ref())?;
    let case = case.on_threads(args.threads());
    args.note(&case);
    let wants_alone = case.tally().wants_alone() || args.out.is_some();
    let (sessions, extent) = source.stream(repeated, &case, args.beside(), wants_alone)?;
    let streamed = args.played(&case, &extent, &progress, |observer| {
        case.stream(case.scenario.replicas, sessions, observer, &progress)
    })?;
    match streamed {
        Some(outcome) => Ok(outcome),
        // Sessions do not come in the order of their first calls.
        None => {
            source.check_read_again()?;
            args.held(written.case(scenario, &source, &source.read()?)?, &progress)
        }
    }
}

type Observed = (Tally, (Option<Rows>, (Option<Scrape>, Option<HitsOverTime>)));

impl Args {
    /// The files that are written.
    fn outputs(&self) -> Vec<PathBuf> {
        let tables = self.out.iter().flat_map(|out| Files::NAMES.map(|name| out.join(name)));
        tables.chain(self.metrics.clone()).chain(self.plot.iter().cloned()).collect()
    }

    fn threads(&self) -> usize {
        let there = || thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(there, |threads| threads as usize)
    }

    /// Whether other threads read and write.
    fn beside(&self) -> bool {
        self.threads() > 1
    }

    /// Says why threads that were asked for do not simulate.
    fn note(&self, case: &Case) {
        if let Some(why) = case.why_one_thread()
            && self.threads.is_some_and(|threads| threads > 1)
        {
            eprintln!("note: one thread simulates: {why}");
        }
    }

    /// Plays a case that holds its trace.
    fn held(&self, case: Case, progress: &Arc<Progress>) -> Result<Outcome> {
        let case = &case.on_threads(self.threads());
        let outcome = self.played(case, &Extent::of(case), progress, |observer| {
            case.run_with(case.scenario.replicas, observer, progress).map(Some)
        })?;
        Ok(outcome.unwrap_or(Outcome::Met))
    }

    /// Plays a case, writes what is asked for and shows the figures; none if it could not be played
    /// in this way.
    fn played(
        &self,
        case: &Case,
        extent: &Extent,
        progress: &Arc<Progress>,
        play: impl FnOnce(Observed) -> Result<Option<Run<Observed>>> + Send,
    ) -> Result<Option<Outcome>> {
        let replicas = case.scenario.replicas;
        let files = self.out.as_deref().map(|folder| Files::create(folder, self.beside()));
        let pools: Vec<String> = case.scenario.pools.iter().map(|pool| pool.name.clone()).collect();
        let rows = files.transpose()?.map(|files| Rows::new(files, Arc::clone(progress)));
        let rows = rows.map(|rows| rows.with_pools(pools));
        // What cannot be written is found out before there is something to lose.
        plot::check(&self.plot)?;
        self.metrics.iter().try_for_each(|path| NewFile::check(path))?;
        let scrape =
            self.metrics.as_ref().map(|_| Scrape::new(replicas, case.setup.engine.max_model_len));
        stop_on_interrupt(progress);
        let label = format!("{replicas} replicas");
        let hits = (!self.plot.is_empty()).then(HitsOverTime::default);
        let tally = match case.scenario.bootstrap {
            Some(true) => case.tally().keeping(),
            _ => case.tally(),
        };
        let observer = (tally, (rows, (scrape, hits)));
        let Some(run) = with_progress(extent, &label, progress, || play(observer))? else {
            return Ok(None);
        };
        let (run, (rows, (scrape, hits))) = run.split();
        if let Some(rows) = rows {
            rows.finish()?;
        }
        if let (Some(path), Some(scrape)) = (&self.metrics, &scrape) {
            let gateway = run.gateway.as_ref();
            write_page(path, |out| prometheus::write(case, &run.engines, scrape, gateway, out))?;
        }
        if let Some(hits) = hits {
            plot::write(&drawn(case, &run, hits), &self.plot)?;
        }
        let judged = case.judge(&run);
        show(|out| self.form.format().replay(case, &judged, out))?;
        Ok(Some(match run.interrupted {
            Some(_) => Outcome::Interrupted,
            None if self.check && !judged.met() => Outcome::NotMet,
            None => Outcome::Met,
        }))
    }
}

/// The run over time.
fn drawn<O>(case: &Case, run: &Run<O>, hits: HitsOverTime) -> Figure {
    let (scenario, engine) = (&case.scenario, &case.setup.engine);
    let scaled = if run.scaling.replicas.is_some() { " at the start" } else { "" };
    let replicas = match scenario.replicas {
        1 if scaled.is_empty() => "one replica".to_owned(),
        1 => format!("one replica{scaled}, {}", scenario.router_name()),
        replicas => format!("{replicas} replicas{scaled}, {}", scenario.router_name()),
    };
    let subtitle = format!("{}: {replicas}", scenario.name);
    let blocks = engine.usable_blocks().unwrap_or(Blocks::ZERO);
    Figure::of_run(run, hits, blocks, subtitle)
}

/// After how long it is said that a run has not stopped yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// Has the first Ctrl-C stop the simulation where it is, and the second the program.
fn stop_on_interrupt(progress: &Arc<Progress>) {
    let progress = Arc::clone(progress);
    // Where there is a handler already it is this one; where there can be none, Ctrl-C kills.
    let _ = ctrlc::set_handler(move || {
        if progress.stop.swap(true, Ordering::Relaxed) {
            std::process::exit(EXIT_INTERRUPTED.into());
        }
        thread::spawn(|| {
            thread::sleep(PATIENCE);
            eprintln!(
                "note: not stopped yet, as when a pipe is waited for; Ctrl-C again ends the \
                 program, without figures"
            );
        });
    });
}

/// A file that gets its name when it is complete.
fn write_page(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<()> {
    let mut file = NewFile::create(path)?;
    let mut buffer = BufWriter::new(&mut file);
    let written = write(&mut buffer).and_then(|()| buffer.flush());
    written.map_err(|error| Error::io(path, "write", &error))?;
    drop(buffer);
    file.commit()
}
