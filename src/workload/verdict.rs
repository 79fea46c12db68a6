//! Target against generated.

use super::measure::{Estimate, Measure};
use super::profile::Profile;
use super::target::Target;

/// How a target was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The figure is inside its bounds.
    Met,
    /// It is outside, but not by more than the sampling error.
    WithinError,
    /// It is outside, and the profile says why.
    Explained(String),
    /// It is outside.
    Missed,
    /// Nothing was generated that has it.
    NotSeen,
}

impl Verdict {
    /// Its word in reports.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::WithinError => "sampling",
            Self::Explained(_) => "explained",
            Self::Missed => "MISSED",
            Self::NotSeen => "not seen",
        }
    }
}

/// One target with what came out.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The target.
    pub target: &'a Target,
    /// What came out.
    pub generated: Option<Estimate>,
    /// How it was met.
    pub verdict: Verdict,
}

/// Every target of a profile against what was measured.
#[must_use]
pub fn rows<'a>(profile: &'a Profile, measure: &Measure) -> Vec<Row<'a>> {
    let row = |target: &'a Target| {
        let generated = measure.estimate(target.quantity, target.at);
        Row { target, generated, verdict: judge(target, generated) }
    };
    profile.targets.iter().map(row).collect()
}

fn judge(target: &Target, generated: Option<Estimate>) -> Verdict {
    let Some(Estimate { value, error }) = generated else { return Verdict::NotSeen };
    let (min, max) = target.wanted.bounds();
    if (min..=max).contains(&value) {
        return Verdict::Met;
    }
    if let Some(why) = &target.unmet {
        return Verdict::Explained(why.clone());
    }
    let error = error.unwrap_or(0.0);
    match value + error >= min && value - error <= max {
        true => Verdict::WithinError,
        false => Verdict::Missed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::profile::Mark;
    use crate::workload::target::{At, Quantity, Wanted};

    #[test]
    fn a_figure_is_met_missed_explained_or_within_its_error() {
        let target = |unmet: Option<&str>| Target {
            name: "t".into(),
            quantity: Quantity::Prompt,
            at: At::Mean,
            wanted: Wanted::About { value: 100.0, within: 5.0 },
            mark: Mark::Published,
            source: String::new(),
            unmet: unmet.map(str::to_owned),
        };
        let of = |value, error| Some(Estimate { value, error });
        assert_eq!(judge(&target(None), of(104.0, None)), Verdict::Met);
        assert_eq!(judge(&target(None), of(106.0, Some(0.5))), Verdict::Missed);
        assert_eq!(judge(&target(None), of(106.0, Some(1.5))), Verdict::WithinError);
        assert_eq!(judge(&target(None), None), Verdict::NotSeen);
        let explained = judge(&target(Some("why")), of(94.0, Some(0.5)));
        assert_eq!(explained, Verdict::Explained("why".into()));
    }
}
