//! The fit: what was asked for, what contradicts what, target against generated.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::diag::{Error, Result};
use crate::units::Span;
use crate::workload::generate::{Generated, Request};
use crate::workload::measure::{Estimate, Measure};
use crate::workload::people::Population;
use crate::workload::profile::{Class, Profile};
use crate::workload::target::Wanted;
use crate::workload::verdict::{self, Row, Verdict};

mod windows;

use windows::Windows;

/// What is reported of a generated trace.
pub(super) struct Report<'a> {
    request: &'a Request,
    /// By profile of the mix.
    measures: Vec<Measure>,
    windows: Windows,
}

/// Whether sessions of this class are those that the profile's targets are about.
fn is_as_published(class: Option<&Class>) -> bool {
    class.is_none_or(|class| class.calls == 1.0 && class.context == 1.0)
}

impl<'a> Report<'a> {
    pub(super) fn new(request: &'a Request) -> Self {
        let measures = request.mix.iter().map(|(profile, _)| Measure::new(profile.classes.len()));
        Self { request, measures: measures.collect(), windows: Windows::default() }
    }

    pub(super) fn take(&mut self, item: &Generated) {
        match item {
            Generated::Context(context, profile) => self.measures[*profile].context(context),
            Generated::Session(made) => {
                let classes = &self.request.mix[made.profile].0.classes;
                let class = made.class.map(|class| &classes[class]);
                self.measures[made.profile].session(made, is_as_published(class));
                made.session.calls.iter().for_each(|call| self.windows.call(call.at));
            }
        }
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        self.measures.iter_mut().try_for_each(Measure::count_hits)
    }

    fn days(&self) -> Option<u32> {
        match self.request.population {
            Population::Developers { days, .. } => Some(days),
            Population::Sessions { .. } => None,
        }
    }

    /// Most calls of ten minutes over the mean of all ten minutes of the population's days.
    fn peak_to_mean(&self) -> Option<f64> {
        let days = self.days()?;
        self.windows.peak_to_mean(Span::from_secs(u64::from(days) * 86_400))
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for ((profile, share), measure) in self.request.mix.iter().zip(&self.measures) {
            if self.request.mix.len() > 1 {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{} ({:.1} % of the people)", profile.name, 100.0 * share);
            }
            let _ = writeln!(text, "{} sessions, {} calls", measure.sessions(), measure.calls());
            for conflict in &profile.conflicts {
                let _ = writeln!(text, "contradiction: {}", conflict.why);
                let _ = writeln!(text, "       choice: {}", conflict.choice);
            }
            text += &fit(profile, measure);
            text += &classes(profile, measure);
        }
        if let Some(ratio) = self.peak_to_mean() {
            let _ = writeln!(text, "peak over mean of the calls in 10 minutes: {ratio:.2}");
        }
        text
    }

    pub(super) fn json(&self) -> Result<String> {
        let profiles = self.request.mix.iter().zip(&self.measures);
        let profiles: Vec<Value> = profiles
            .map(|((profile, share), measure)| {
                let conflicts = profile.conflicts.iter().map(|conflict| {
                    json!({"name": conflict.name, "why": conflict.why, "choice": conflict.choice})
                });
                let rows = verdict::rows(profile, measure);
                let classes = profile.classes.iter().enumerate().map(|(index, class)| {
                    let estimate = measure.class_tokens_per_turn(index);
                    json!({"name": class.name, "share": class.share,
                           "tokens_per_turn_target": class.tokens_per_turn,
                           "tokens_per_turn_mean": estimate.map(|estimate| estimate.value)})
                });
                json!({
                    "profile": profile.name,
                    "share": share,
                    "sessions": measure.sessions(),
                    "calls": measure.calls(),
                    "hit_sample_sessions": measure.sample_sessions(),
                    "conflicts": conflicts.collect::<Vec<_>>(),
                    "targets": rows.iter().map(row_json).collect::<Vec<_>>(),
                    "classes": classes.collect::<Vec<_>>(),
                })
            })
            .collect();
        let whole = json!({"profiles": profiles, "peak_to_mean_10min": self.peak_to_mean()});
        let text = serde_json::to_string_pretty(&whole)
            .map_err(|error| Error::new(format!("cannot write the fit as JSON: {error}")))?;
        Ok(text + "\n")
    }
}

fn row_json(row: &Row<'_>) -> Value {
    let target = row.target;
    let (min, max) = target.wanted.bounds();
    let value = match target.wanted {
        Wanted::About { value, .. } => Some(value),
        Wanted::Between(..) => None,
    };
    json!({
        "name": target.name,
        "quantity": target.quantity.name(),
        "at": target.at.text(),
        "target": value,
        "min": min,
        "max": max,
        "generated": row.generated.map(|estimate| estimate.value),
        "sampling_error": row.generated.and_then(|estimate| estimate.error),
        "verdict": row.verdict.word(),
        "why": match &row.verdict {
            Verdict::Explained(why) => Some(why),
            _ => None,
        },
        "mark": target.mark.word(),
        "source": target.source,
    })
}

/// The table of targets.
fn fit(profile: &Profile, measure: &Measure) -> String {
    let mut text = format!(
        "{:<34} {:>12} {:>12} {:>8} {:>9}\n",
        "figure", "target", "generated", "off", "verdict"
    );
    for row in verdict::rows(profile, measure) {
        let target = row.target;
        let name = format!("{} {}", target.quantity.name(), target.at.text());
        let name = name.trim_end_matches(" total");
        let (wanted, off) = match target.wanted {
            Wanted::About { value, .. } => {
                let generated = row.generated.map(|estimate| estimate.value);
                (short(value), generated.map_or(String::new(), |generated| off(generated, value)))
            }
            Wanted::Between(min, max) => (format!("{}-{}", short(min), short(max)), String::new()),
        };
        let generated = row.generated.map_or("-".to_owned(), |estimate| short(estimate.value));
        let verdict = row.verdict.word();
        let _ = writeln!(text, "{name:<34} {wanted:>12} {generated:>12} {off:>8} {verdict:>9}");
        match (&row.verdict, row.generated) {
            (Verdict::Explained(why), _) => {
                let _ = writeln!(text, "    {why}");
            }
            (Verdict::WithinError, Some(Estimate { error: Some(error), .. })) => {
                let _ = writeln!(
                    text,
                    "    the sampling error, {}, is larger: make more sessions",
                    short(error)
                );
            }
            _ => {}
        }
    }
    let _ = writeln!(
        text,
        "hit and new_per_output are of the first {} sessions",
        measure.sample_sessions()
    );
    text
}

fn classes(profile: &Profile, measure: &Measure) -> String {
    let mut text = String::new();
    for (index, class) in profile.classes.iter().enumerate() {
        let Some(estimate) = measure.class_tokens_per_turn(index) else { continue };
        let name = format!("tokens_per_turn mean, {}", class.name);
        let target = class.tokens_per_turn.map_or("-".to_owned(), short);
        let off = class.tokens_per_turn.map_or(String::new(), |t| off(estimate.value, t));
        let _ = writeln!(text, "{name:<34} {target:>12} {:>12} {off:>8}", short(estimate.value));
    }
    text
}

/// By how much something is off its target.
fn off(generated: f64, target: f64) -> String {
    format!("{:+.1} %", 100.0 * (generated / target - 1.0))
}

/// A number to about four digits.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
