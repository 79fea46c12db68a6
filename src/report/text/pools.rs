//! Pools of replicas, as text.

use std::io::{self, Write};

use comfy_table::{Cell, Table};

use super::{grouped, percent, percent_or_dash, right, short_or_dash};
use crate::config::pools::{Kind, Overflow, Pool, Rules, Takes};
use crate::config::scenario::Scenario;
use crate::sizing::figures::{Figures, PoolFigures};

/// A line for each pool.
pub(super) fn header(scenario: &Scenario, out: &mut dyn Write) -> io::Result<()> {
    for pool in &scenario.pools {
        let sharing = match pool.overflow {
            None => String::new(),
            Some(Overflow { to, calls }) => {
                let to = to.map_or("any other", |to| &scenario.pools[to].name);
                format!("; to {to} from {calls} calls a replica on")
            }
        };
        writeln!(out, "  pool      {}: {}{sharing}", pool.name, taken(pool))?;
    }
    Ok(())
}

/// Which calls are a pool's.
fn taken(pool: &Pool) -> String {
    let Takes::Calls(rules) = &pool.takes else { return "all other calls".to_owned() };
    let Rules { models, tenants, profiles, kind } = rules;
    let lists = [("model", models), ("tenant", tenants), ("profile", profiles)];
    let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
    let mut parts: Vec<String> =
        lists.map(|(name, names)| format!("{name} {}", names.join(" or "))).collect();
    parts.extend(kind.map(|kind| match kind {
        Kind::Main => "main agents".to_owned(),
        Kind::Subagent => "subagents".to_owned(),
    }));
    format!("calls of {}", parts.join(", "))
}

/// How many replicas are in each pool: `2 in human, 3 in agents`.
pub(super) fn sizes(figures: &Figures) -> String {
    let pools = figures.pools.iter();
    let pools = pools.map(|pool| format!("{} in {}", pool.replicas, pool.name));
    pools.collect::<Vec<_>>().join(", ")
}

/// A row for each pool.
pub(super) fn table(pools: &[PoolFigures]) -> Table {
    let columns = [
        "pool",
        "replicas",
        "calls",
        "failed",
        "spilled",
        "taken in",
        "hit",
        "ttft p95, s",
        "KV p95",
        "idle",
    ];
    let mut table = super::table(&columns);
    for pool in pools {
        let counts = [pool.calls, pool.calls_failed, pool.spilled, pool.taken_in];
        let mut cells = vec![Cell::new(&pool.name), right(pool.replicas.to_string())];
        cells.extend(counts.map(|count| right(grouped(count as i64))));
        cells.push(right(percent_or_dash(pool.hit)));
        cells.push(right(short_or_dash(pool.ttft.map(|ttft| ttft.p95))));
        cells.extend([pool.kv_p95, pool.idle].map(|share| right(percent(share))));
        table.add_row(cells);
    }
    table
}
