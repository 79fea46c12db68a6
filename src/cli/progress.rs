//! How far a simulation has come, on a terminal only.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};

use crate::config::scenario::LoadKind;
use crate::fleet::Progress;
use crate::sizing::case::Case;
use crate::units::{Span, Time};

/// How far a run goes.
#[derive(Clone, Debug)]
pub enum Extent {
    /// To its last call.
    Calls(u64),
    /// About so long.
    Time(Span),
    /// To the end of a file that is read meanwhile.
    Bytes {
        /// Bytes read.
        read: Arc<AtomicU64>,
        /// All of them.
        bytes: u64,
    },
    /// Nobody knows.
    Unknown,
}

impl Extent {
    /// How far a case with its whole trace goes.
    pub fn of(case: &Case) -> Self {
        match case.setup.window {
            Some(window) => Self::Time(case.setup.warmup + window),
            None if case.scenario.load.kind == LoadKind::Trace => {
                Self::Calls(case.workload.calls())
            }
            None => Self::Unknown,
        }
    }

    /// The part of it that is done, from 0 to 1.
    fn done(&self, progress: &Progress) -> f64 {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        match self {
            Self::Calls(calls) => load(&progress.calls) / (*calls).max(1) as f64,
            Self::Time(span) => load(&progress.nanos) / span.as_f64().max(1.0),
            Self::Bytes { read, bytes } => load(read) / (*bytes).max(1) as f64,
            Self::Unknown => 0.0,
        }
    }
}

/// Steps of the bar.
const STEPS: u64 = 10_000;

/// Runs some work while a bar on the terminal shows how far its simulation has come.
pub fn with_progress<T: Send>(
    extent: &Extent,
    label: &str,
    progress: &Progress,
    work: impl FnOnce() -> T + Send,
) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let bar = ProgressBar::new(STEPS);
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent} % ({eta} left)");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let started = Instant::now();
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            bar.set_position((extent.done(progress).clamp(0.0, 1.0) * STEPS as f64) as u64);
            let calls = progress.calls.load(Ordering::Relaxed);
            let rate = calls as f64 / started.elapsed().as_secs_f64().max(1e-3);
            let simulated = Time(progress.nanos.load(Ordering::Relaxed));
            bar.set_message(format!(
                "{label}: {} calls, {} a second, {} simulated",
                HumanCount(calls),
                HumanCount(rate as u64),
                HumanDuration(Duration::from_secs(simulated.secs() as u64)),
            ));
            std::thread::sleep(Duration::from_millis(50));
        }
        worker.join()
    });
    bar.finish_and_clear();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
