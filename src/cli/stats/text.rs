//! The figures as tables for people.

use comfy_table::{CellAlignment, Table, presets};

use crate::trace::meta::PartialBlock;
use crate::trace::summary::cache::LruFigures;
use crate::trace::summary::dist::Dist;
use crate::trace::summary::{Columns, Summary};

/// All figures, table by table.
pub(super) fn render(summary: &Summary) -> String {
    let mut parts = vec![totals(summary), shapes(summary), steps(summary)];
    if !summary.lru.is_empty() || !summary.lru_forward.is_empty() {
        parts.push(caches(summary));
    }
    parts.push(models(summary));
    parts.push(by_column(&summary.columns));
    parts.join("\n\n") + "\n"
}

/// A table whose first column reads from the left and whose numbers end at the right.
fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.iter().map(ToString::to_string).collect::<Vec<_>>());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn totals(summary: &Summary) -> String {
    let partial = match summary.partial_block {
        PartialBlock::Count => "a partial block counts",
        PartialBlock::Drop => "a partial block does not count",
    };
    let infinite = &summary.traffic.infinite;
    let mut rows = vec![
        ("sessions", count(summary.sessions.sessions)),
        ("  with subagents", count(summary.sessions.sessions_with_subagents)),
        ("  subagents", count(summary.sessions.subagent_threads)),
        ("  shared contexts", count(summary.columns.shared_contexts)),
        ("calls", count(summary.traffic.requests)),
        ("prompt tokens", count(summary.traffic.tokens_in)),
        ("output tokens", count(summary.traffic.tokens_out)),
        ("prompt : output", option(summary.traffic.in_out_ratio)),
        ("new prompt : output", option(summary.traffic.new_to_out_ratio_total)),
        ("blocks of prompts", count(infinite.total_blocks)),
        ("  different", count(infinite.unique_blocks)),
        ("  hit, endless cache", count(infinite.prefix_hit_blocks)),
        ("  share of blocks", percent(infinite.hit_rate_blocks)),
        ("  share of tokens", percent(infinite.hit_rate_tokens)),
    ];
    if let Some(arrival) = &summary.traffic.arrival_on_merged_timeline {
        rows.extend([
            ("time from first to last call, s", float(arrival.span_s)),
            ("calls a minute, mean", option(arrival.mean_per_min)),
            ("  in the busiest minute", count(arrival.peak_per_min)),
            ("  CV of the times between calls", option(arrival.cv_interarrival)),
            ("  variance / mean in 1 s", option(arrival.index_of_dispersion_1s)),
            ("  in 10 s", option(arrival.index_of_dispersion_10s)),
            ("  in 60 s", option(arrival.index_of_dispersion_60s)),
        ]);
    }
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    let head = format!(" in blocks of {} tokens; {partial}", summary.block_size);
    format!("{head}\n\n{}", table(&["", "total"], rows))
}

const SHAPE: [&str; 9] = ["", "n", "mean", "p10", "p50", "p90", "p99", "max", "min"];

fn shapes(summary: &Summary) -> String {
    let of_calls = [
        ("prompt tokens", &summary.traffic.prompt_tokens),
        ("  new", &summary.traffic.new_tokens),
        ("output tokens", &summary.traffic.output_tokens),
        ("growth in a lane, tokens", &summary.sessions.context_growth_tokens_per_call),
        ("calls of a session", &summary.sessions.calls_per_session_all),
        ("  main lane", &summary.sessions.calls_per_session_main),
        ("subagents, if any", &summary.sessions.subagents_per_session_having_any),
        ("first prompt, tokens", &summary.sessions.first_prompt_tokens),
        ("last prompt, tokens", &summary.sessions.last_prompt_tokens),
        ("longest prompt, tokens", &summary.sessions.max_prompt_tokens),
    ];
    let measured = [
        ("prompt : output of a call", &summary.traffic.in_out_ratio_per_request),
        ("session, s", &summary.sessions.session_duration_s),
        ("between dispatches, s", &summary.sessions.inter_call_interval_s),
        ("recorded duration, s", &summary.traffic.api_time_s),
        ("share of session in calls", &summary.sessions.session_duty_cycle),
        ("hit of a session", &summary.sessions.per_session_hit),
    ];
    let whole = of_calls.iter().filter_map(|(name, dist)| shape(name, dist.as_ref(), signed));
    let float = measured.iter().filter_map(|(name, dist)| shape(name, dist.as_ref(), float));
    table(&SHAPE, whole.chain(float))
}

/// The row of a set of values; none of an empty set.
fn shape<T: Copy>(
    name: &str,
    dist: Option<&Dist<T>>,
    text: impl Fn(T) -> String,
) -> Option<Vec<String>> {
    let dist = dist?;
    let points = [dist.p10, dist.p50, dist.p90, dist.p99, dist.max, dist.min];
    let mut row = vec![name.to_owned(), count(dist.n), float(dist.mean)];
    row.extend(points.map(text));
    Some(row)
}

fn steps(summary: &Summary) -> String {
    let hits = &summary.sessions.step_hit_tokens;
    let mut header = vec!["call of the main lane"];
    header.extend(hits.keys().map(String::as_str));
    let mut row = vec!["tokens hit, endless cache".to_owned()];
    row.extend(hits.values().map(|share| percent(Some(*share))));
    table(&header, [row])
}

fn caches(summary: &Summary) -> String {
    let rows = |touch: &'static str, caches: &[LruFigures]| {
        let row = move |cache: &LruFigures| {
            vec![
                touch.to_owned(),
                count(cache.capacity_blocks),
                percent(cache.hit_rate_blocks),
                percent(cache.hit_rate_tokens),
                count(cache.prefix_hit_blocks),
                count(cache.evictions),
            ]
        };
        caches.iter().map(row).collect::<Vec<_>>()
    };
    let header = ["LRU cache", "blocks", "of blocks", "of tokens", "blocks hit", "evictions"];
    let tail = rows("tail evicted first", &summary.lru);
    table(&header, tail.into_iter().chain(rows("head evicted first", &summary.lru_forward)))
}

fn models(summary: &Summary) -> String {
    let rows = summary.traffic.models.iter().map(|(model, calls)| {
        let model = if model.is_empty() { "(none)" } else { &**model };
        vec![model.to_owned(), count(*calls)]
    });
    let changes = "changes from call to call, main lane".to_owned();
    let share = percent(summary.sessions.model_change_share_of_consecutive_calls);
    table(&["model", "calls"], rows.chain([vec![changes, share]]))
}

fn by_column(columns: &Columns) -> String {
    let counts = |what: &'static str, counts: &[(&'static str, u64)]| {
        let shown = counts.iter().filter(|(_, calls)| *calls > 0);
        shown.map(|(word, calls)| vec![format!("{what} {word}"), count(*calls)]).collect::<Vec<_>>()
    };
    let calls = counts("status", &columns.status).into_iter();
    let calls = table(&["column", "calls"], calls.chain(counts("cause", &columns.cause)));
    let gaps = columns.gap_s.iter();
    let gaps =
        gaps.filter_map(|(word, dist)| shape(&format!("gap_s, {word}"), dist.as_ref(), float));
    let turns = [
        shape("turns of a session", columns.turns_per_session.as_ref(), signed),
        shape("calls of a turn", columns.calls_per_numbered_turn.as_ref(), signed),
    ];
    let shapes = table(&SHAPE, gaps.chain(turns.into_iter().flatten()));
    format!("{calls}\n\n{shapes}")
}

fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", count(number.unsigned_abs()))
}

/// With as many decimals as tell something beside its size.
fn float(number: f64) -> String {
    let decimals = match number.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 10.0 => 1,
        _ => 3,
    };
    let text = format!("{:.decimals$}", number.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    let sign = if number < 0.0 { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

fn option(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), float)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(123_456), "123,456");
        assert_eq!(signed(-105_337), "-105,337");
        assert_eq!(float(1_234.5), "1,234");
        assert_eq!(float(-12.34), "-12.3");
        assert_eq!(float(0.1234), "0.123");
        assert_eq!(percent(Some(0.92945)), "92.94 %");
        assert_eq!(percent(None), "-");
    }
}
