//! Trace against generated, quantity by quantity.

use super::coupling::Coupling;
use super::quantity::{Quantity, Share};
use super::readings::Readings;
use super::sample::{Cells, Distance};

/// A figure may be so far off, as a share of it.
pub const SLACK: f64 = 0.05;
/// Kolmogorov's bound that two samples of one distribution pass once in twenty, times the root of
/// `(n + m) / (n m)`. Values of one session are not independent, so at most the sessions count.
const KS_95: f64 = 1.358;
/// The same for a share, in deviations.
const NORMAL_95: f64 = 1.96;
/// Quantities of a session that go together less than this explain nothing.
const COUPLED: f64 = 0.15;

/// Figures of one quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Values.
    pub n: u64,
    /// 10th percentile.
    pub p10: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Mean.
    pub mean: f64,
}

impl Figures {
    fn of(cells: &Cells) -> Self {
        let at = |share| cells.quantile(share);
        Self {
            n: cells.count,
            p10: at(0.1),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            mean: cells.mean,
        }
    }

    /// Each figure with its name.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("p10", self.p10),
            ("p50", self.p50),
            ("p90", self.p90),
            ("p99", self.p99),
            ("mean", self.mean),
        ]
    }
}

/// How well something came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No figure is off by more than 5 %, or by more than 1 for a percentile of a count.
    Close,
    /// Some are, and so they may be in two samples of these sizes from one distribution.
    Sampling,
    /// Some are.
    Off,
}

impl Verdict {
    /// Its word in reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Sampling => "sampling",
            Self::Off => "OFF",
        }
    }
}

/// A quantity of the trace and of what was generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The quantity.
    pub quantity: Quantity,
    /// In the trace.
    pub trace: Figures,
    /// In what was generated; `None` if nothing there has it.
    pub generated: Option<Figures>,
    /// How far apart they are.
    pub distance: Option<Distance>,
    /// How well it came out.
    pub verdict: Verdict,
    /// Why it is off, where that is known.
    pub why: Option<&'static str>,
}

/// A share of the trace and of what was generated.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareRow {
    /// The share.
    pub share: Share,
    /// In the trace.
    pub trace: f64,
    /// In what was generated.
    pub generated: Option<f64>,
    /// How well it came out.
    pub verdict: Verdict,
    /// Why it is off, where that is known.
    pub why: Option<&'static str>,
}

/// Everything against everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Quantities that the trace has.
    pub rows: Vec<Row>,
    /// Shares that the trace has.
    pub shares: Vec<ShareRow>,
    /// Quantities of a session that go together in the trace, with their rank correlation. A
    /// profile draws them apart, so what comes of several of them is off.
    pub couplings: Vec<Coupling>,
}

/// Holds what was generated against the trace.
#[must_use]
pub fn compare(trace: &Readings, generated: &Readings) -> Comparison {
    let mut couplings = trace.couplings.of_sessions();
    couplings.retain(|coupling| coupling.correlation.abs() >= COUPLED);
    let rows = Quantity::ALL.iter().filter_map(|quantity| {
        let mut row = row(*quantity, trace, generated)?;
        if row.verdict == Verdict::Off {
            row.why = why(*quantity);
        }
        Some(row)
    });
    let shares = Share::ALL.iter().filter_map(|share| {
        let mut row = share_row(*share, trace, generated)?;
        if row.verdict == Verdict::Off {
            row.why = why_share(*share);
        }
        Some(row)
    });
    Comparison { rows: rows.collect(), shares: shares.collect(), couplings }
}

fn row(quantity: Quantity, trace: &Readings, generated: &Readings) -> Option<Row> {
    let (steps, ours) = (quantity.steps(), trace.sample(quantity)?);
    let theirs = generated.sample(quantity);
    let as_rough = !ours.is_exact() || theirs.is_some_and(|sample| !sample.is_exact());
    let ours = ours.cells(steps, as_rough);
    let theirs = theirs.map(|sample| sample.cells(steps, as_rough));
    let figures = Figures::of(&ours);
    let Some(theirs) = theirs else {
        let verdict = if ours.max() == 0.0 { Verdict::Close } else { Verdict::Off };
        return Some(Row {
            quantity,
            trace: figures,
            generated: None,
            distance: None,
            verdict,
            why: None,
        });
    };
    let found = Figures::of(&theirs);
    let distance = Distance::between(&ours, &theirs);
    let is_close = figures.named().iter().zip(found.named()).all(|((name, wanted), (_, found))| {
        let is_whole = quantity.is_count() && *name != "mean";
        is_near(*wanted, found) || (is_whole && (wanted - found).abs() <= 1.0)
    });
    let n = ours.count.min(trace.sessions) as f64;
    let m = theirs.count.min(generated.sessions) as f64;
    let chance = KS_95 * ((n + m) / (n * m)).sqrt();
    let verdict = match is_close {
        true => Verdict::Close,
        false if distance.is_some_and(|distance| distance.ks <= chance) => Verdict::Sampling,
        false => Verdict::Off,
    };
    Some(Row { quantity, trace: figures, generated: Some(found), distance, verdict, why: None })
}

fn share_row(share: Share, trace: &Readings, generated: &Readings) -> Option<ShareRow> {
    let (wanted, n) = trace.value(share)?;
    let found = generated.value(share);
    let verdict = match found {
        Some((found, _)) if is_near(wanted, found) => Verdict::Close,
        Some((found, m)) if share.is_of_cases() || share == Share::PeakStarts => {
            let variance = match share {
                // That of a number of independent starts.
                Share::PeakStarts => wanted * wanted,
                _ => {
                    let pooled = (wanted * n + found * m) / (n + m);
                    pooled * (1.0 - pooled)
                }
            };
            let deviation = (variance * (1.0 / n + 1.0 / m)).sqrt();
            match (wanted - found).abs() <= NORMAL_95 * deviation {
                true => Verdict::Sampling,
                false => Verdict::Off,
            }
        }
        None if wanted == 0.0 => Verdict::Close,
        _ => Verdict::Off,
    };
    let generated = found.map(|(found, _)| found);
    Some(ShareRow { share, trace: wanted, generated, verdict, why: None })
}

fn is_near(wanted: f64, found: f64) -> bool {
    (wanted - found).abs() <= SLACK * wanted.abs()
}

impl Share {
    /// Whether it is a share of cases, of which each is one or is not.
    const fn is_of_cases(self) -> bool {
        matches!(
            self,
            Self::SingleTurn
                | Self::Stripped
                | Self::Volatile
                | Self::SubagentSessions
                | Self::Replaced
                | Self::Compactions
                | Self::Switches
                | Self::FailedCalls
        )
    }
}

const BUSY: &str = "each turn's calls are drawn alone, but a session with long turns has more of \
                    them";
const GROWN: &str = "first prompt, calls and growths are drawn apart and added up";

const fn why(quantity: Quantity) -> Option<&'static str> {
    let why = match quantity {
        Quantity::CallsPerSession | Quantity::CallsPerTurn => BUSY,
        Quantity::Prompt
        | Quantity::LastPrompt
        | Quantity::TokensPerTurn
        | Quantity::PromptPerOutput => GROWN,
        Quantity::Compacted | Quantity::ReplacedTokens => {
            "a replaced prompt that is much shorter than the one before counts as a compaction"
        }
        Quantity::SessionMinutes => {
            "pauses are drawn call by call, and calls take as long as the assumed speed says"
        }
        Quantity::Spawns | Quantity::SpawnsTogether => {
            "groups of subagents that are drawn on one call by chance are read as one group"
        }
        Quantity::SubagentCalls => "at the prompt's limit a subagent ends early",
        Quantity::Beside => "calls beside the main agent's are dealt to whole steps of a turn",
        _ => return None,
    };
    Some(why)
}

const fn why_share(share: Share) -> Option<&'static str> {
    let why = match share {
        Share::TotalRatio | Share::NewPerOutput => GROWN,
        Share::Compactions | Share::Replaced => {
            "whether a prompt that starts anew was compacted or replaced is told by its length"
        }
        Share::Hit => {
            "edits behind the middle of a conversation, forks and resumed conversations are not \
             learnt"
        }
        Share::AgentStarted => BUSY,
        Share::PeakStarts => "people have the hours of one of three kinds of week",
        Share::Prefix => "all sessions get a prefix of one length",
        _ => return None,
    };
    Some(why)
}
