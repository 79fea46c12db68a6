//! How well profiles fit, as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::diag::{Error, Result};
use crate::workload::fit::{Comparison, Coupling, Figures, Row, ShareRow, Verdict};
use crate::workload::profile::Profile;

/// A profile with what is to be said of it.
pub(super) struct Fitted {
    pub(super) profile: Profile,
    pub(super) warnings: Vec<String>,
    pub(super) sessions: u64,
    pub(super) calls: u64,
    /// Sessions and calls that were generated.
    pub(super) played: (u64, u64),
    pub(super) comparison: Comparison,
}

/// The tables of all profiles.
pub(super) fn text(fits: &[Fitted]) -> String {
    let mut text = String::new();
    for fitted in fits {
        let Fitted { profile, sessions, calls, played, .. } = fitted;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}: {sessions} sessions, {calls} calls", profile.name);
        let _ = writeln!(text, "generated to compare: {} sessions, {} calls", played.0, played.1);
        for warning in &fitted.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        text += &table(&fitted.comparison);
    }
    text
}

fn table(comparison: &Comparison) -> String {
    let mut text = format!(
        "{:<32} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>9}\n",
        "quantity", "p50", "mean", "p10", "p50", "p90", "p99", "mean", "KS", "moved", "verdict"
    );
    for (title, is_drawn) in [("learnt", true), ("comes of it", false)] {
        let _ = writeln!(text, "{title}");
        let rows = comparison.rows.iter().filter(|row| row.quantity.is_drawn() == is_drawn);
        rows.for_each(|row| text += &line(row));
    }
    let _ = writeln!(text, "{:<32} {:>9} {:>9} {:>8}", "share", "trace", "generated", "off");
    comparison.shares.iter().for_each(|row| text += &share_line(row));
    for Coupling { what, correlation } in &comparison.couplings {
        let _ = writeln!(text, "together in the trace, drawn apart: {what} ({correlation:+.2})");
    }
    text
}

fn line(row: &Row) -> String {
    let (trace, verdict) = (&row.trace, row.verdict.word());
    let offs = row.generated.map_or(vec!["-".to_owned(); 5], |found| {
        let pairs = trace.named().into_iter().zip(found.named());
        pairs.map(|((_, wanted), (_, found))| off(wanted, found)).collect()
    });
    let ks = row.distance.map_or("-".to_owned(), |distance| format!("{:.3}", distance.ks));
    let moved = row.distance.and_then(|distance| distance.moved);
    let moved = moved.map_or("-".to_owned(), |moved| format!("{moved:.3}"));
    let name = format!("  {} ({})", row.quantity.name(), row.quantity.unit());
    let mut text = format!("{name:<32} {:>9} {:>9}", short(trace.p50), short(trace.mean));
    for off in offs {
        let _ = write!(text, " {off:>8}");
    }
    let _ = writeln!(text, " {ks:>6} {moved:>6} {verdict:>9}");
    text + &because(row.why)
}

fn share_line(row: &ShareRow) -> String {
    let generated = row.generated.map_or("-".to_owned(), short);
    let off = row.generated.map_or("-".to_owned(), |found| off(row.trace, found));
    let text = format!(
        "  {:<30} {:>9} {generated:>9} {off:>8} {:>9}\n",
        row.share.name(),
        short(row.trace),
        row.verdict.word()
    );
    text + &because(row.why)
}

fn because(why: Option<&str>) -> String {
    why.map_or(String::new(), |why| format!("      {why}\n"))
}

/// By how much something is off what it was fitted from, in percent.
fn off(wanted: f64, found: f64) -> String {
    match wanted == found {
        true => "0".to_owned(),
        false if wanted == 0.0 => "new".to_owned(),
        false => format!("{:+.1}", 100.0 * (found / wanted - 1.0)),
    }
}

/// A number to about four digits.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// All of it as JSON.
pub(super) fn json(fits: &[Fitted]) -> Result<String> {
    let fits: Vec<Value> = fits.iter().map(fit_json).collect();
    let text = serde_json::to_string_pretty(&json!({ "fits": fits }))
        .map_err(|error| Error::new(format!("cannot write the distances as JSON: {error}")))?;
    Ok(text + "\n")
}

fn fit_json(fitted: &Fitted) -> Value {
    let rows = fitted.comparison.rows.iter().map(|row| {
        json!({
            "quantity": row.quantity.name(),
            "unit": row.quantity.unit(),
            "learnt": row.quantity.is_drawn(),
            "trace": figures_json(&row.trace),
            "generated": row.generated.as_ref().map(figures_json),
            "relative_difference": row.generated.as_ref().map(|found| {
                let pairs = row.trace.named().into_iter().zip(found.named());
                let differences = pairs.map(|((name, wanted), (_, found))| {
                    (name.to_owned(), json!((wanted != 0.0).then(|| found / wanted - 1.0)))
                });
                differences.collect::<Map<_, _>>()
            }),
            "ks": row.distance.map(|distance| distance.ks),
            "wasserstein_1_over_mean": row.distance.and_then(|distance| distance.moved),
            "verdict": word(row.verdict),
            "why": row.why,
        })
    });
    let shares = fitted.comparison.shares.iter().map(|row| {
        json!({
            "share": row.share.name(),
            "trace": row.trace,
            "generated": row.generated,
            "verdict": word(row.verdict),
            "why": row.why,
        })
    });
    let couplings =
        fitted.comparison.couplings.iter().map(
            |coupling| json!({"what": coupling.what, "rank_correlation": coupling.correlation}),
        );
    json!({
        "profile": fitted.profile.name,
        "sessions": fitted.sessions,
        "calls": fitted.calls,
        "generated_sessions": fitted.played.0,
        "generated_calls": fitted.played.1,
        "warnings": fitted.warnings,
        "quantities": rows.collect::<Vec<_>>(),
        "shares": shares.collect::<Vec<_>>(),
        "couplings": couplings.collect::<Vec<_>>(),
    })
}

fn word(verdict: Verdict) -> String {
    verdict.word().to_lowercase()
}

fn figures_json(figures: &Figures) -> Value {
    let mut map = Map::new();
    map.insert("n".to_owned(), json!(figures.n));
    map.extend(figures.named().into_iter().map(|(name, value)| (name.to_owned(), json!(value))));
    Value::Object(map)
}
