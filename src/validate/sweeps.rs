//! Sweeps of concurrency with the hit rate of the prefix cache: where the cache collapses, and how
//! steeply.

use std::collections::BTreeMap;

use super::table::{Column, Row, Table};
use crate::diag::{Error, Result};

/// Columns that a sweep must have.
pub const NEEDED: &[Column] = &[
    ("series", "name of the sweep that the row belongs to"),
    ("concurrency", "sessions in flight"),
    ("ttft_ms", "time to the first token"),
    ("prefix_hit_pct", "share of prompt tokens found in the prefix cache, in percent"),
];

/// Columns that it may have.
pub const OPTIONAL: &[Column] = &[
    ("report", "study that the sweep belongs to"),
    ("label", "what the sweep is"),
    ("model", "what served"),
    ("gpu", "on which GPU"),
    ("gpus", "on how many"),
    ("itl_ms", "time between tokens"),
    ("isl_mean", "not used"),
    ("osl_mean", "not used"),
    ("kv_util_pct", "not used"),
    ("preempted", "not used"),
    ("running", "not used"),
    ("waiting", "not used"),
    ("input_tok_s", "not used"),
    ("output_tok_s", "not used"),
    ("spec_accept_pct", "not used"),
];

/// One level of concurrency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Sessions in flight.
    pub concurrency: u64,
    /// Share of prompt tokens found in the cache, from 0 to 1.
    pub hit: f64,
    /// Time to the first token.
    pub ttft_ms: f64,
}

/// One sweep, by rising concurrency.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// Study and series.
    pub name: String,
    /// What served.
    pub model: String,
    /// Its levels.
    pub levels: Vec<Level>,
}

/// What happens from one level to another of at most twice its concurrency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fall {
    /// Before.
    pub from: Level,
    /// After.
    pub to: Level,
}

impl Fall {
    /// The hit rate after over that before.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        self.to.hit / self.from.hit
    }

    /// The time to the first token after over that before.
    #[must_use]
    pub fn ttft_ratio(&self) -> f64 {
        self.to.ttft_ms / self.from.ttft_ms
    }

    /// Whether it is the collapse of a cache: hits more than halve and the first token takes more
    /// than ten times as long.
    #[must_use]
    pub fn is_collapse(&self) -> bool {
        self.hit_ratio() < 0.5 && self.ttft_ratio() > 10.0
    }
}

impl Sweep {
    /// The largest fall of the hit rate within one doubling of concurrency.
    #[must_use]
    pub fn largest_fall(&self) -> Option<Fall> {
        let falls = self.levels.iter().enumerate().flat_map(|(at, &from)| {
            let later = self.levels.iter().skip(at + 1);
            let within = later.take_while(move |to| to.concurrency <= 2 * from.concurrency);
            within.map(move |&to| Fall { from, to })
        });
        let real = falls.filter(|fall| fall.from.hit > 0.0 && fall.from.ttft_ms > 0.0);
        let drop = |fall: &Fall| fall.from.hit - fall.to.hit;
        real.max_by(|a, b| drop(a).total_cmp(&drop(b)))
    }
}

/// The sweeps of a table, by name. Rows without a hit rate or a time to the first token are left
/// out.
///
/// # Errors
/// A field that is not what its column holds.
pub fn read(table: &Table) -> Result<Vec<Sweep>> {
    let mut sweeps: BTreeMap<String, Sweep> = BTreeMap::new();
    for row in table.rows() {
        let series = row.needed("series")?;
        let name = match row.text("report") {
            Some(report) => format!("{report} {series}"),
            None => series.to_owned(),
        };
        let model = row.text("model").unwrap_or_default().to_owned();
        let empty = || Sweep { name: name.clone(), model, levels: Vec::new() };
        let sweep = sweeps.entry(name.clone()).or_insert_with(empty);
        sweep.levels.extend(level(&row)?);
    }
    let mut sweeps: Vec<Sweep> = sweeps.into_values().collect();
    sweeps.iter_mut().for_each(|sweep| sweep.levels.sort_by_key(|level| level.concurrency));
    Ok(sweeps)
}

fn level(row: &Row<'_>) -> Result<Option<Level>> {
    let concurrency = row.whole("concurrency", 1, 1 << 20)?;
    let concurrency = concurrency
        .ok_or_else(|| row.at("concurrency", Error::new("this field must not be empty")))?;
    let hit = row.number("prefix_hit_pct", 0.0, 100.0)?;
    let ttft = row.number("ttft_ms", 0.0, 1e9)?;
    let both = hit.zip(ttft);
    Ok(both.map(|(hit, ttft_ms)| Level { concurrency, hit: hit / 100.0, ttft_ms }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_fall_is_found_within_a_doubling() {
        let text = "series,concurrency,ttft_ms,prefix_hit_pct\n\
                    a,512,70795,19.9\na,128,600,79.3\na,256,1091,71.2\na,2048,1,0\nb,1,5,\n";
        let table = Table::read_from(text.as_bytes(), "t.csv").unwrap();
        let sweeps = read(&table).unwrap();
        let fall = sweeps[0].largest_fall().unwrap();
        assert_eq!((fall.from.concurrency, fall.to.concurrency), (256, 512));
        assert!(fall.is_collapse(), "{fall:?}");
        assert_eq!(sweeps[1].largest_fall(), None);
    }
}
