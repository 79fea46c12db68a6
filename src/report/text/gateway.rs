//! What the gateway and the autoscalers did, as text.

use comfy_table::{Cell, Table};

use super::{right, table};
use crate::report::numbers::{grouped, percent, percent_or_dash, short, short_or_dash};
use crate::sizing::figures::{GatewayFigures, Scaling};

/// One row a count.
pub(super) fn counts(gateway: &GatewayFigures) -> Table {
    let counts = &gateway.counts;
    let mut table = table(&["gateway", "", ""]);
    let mut row = |name: &str, value: String, note: &str| {
        table.add_row([Cell::new(name), right(value), Cell::new(note)]);
    };
    let count = |value: u64| grouped(value as i64);
    let workers = format!("of {} workers", gateway.num_workers);
    row("replicas", short(gateway.replicas_mean), &workers);
    row("offered", count(counts.offered), "requests that reached it");
    row("admitted", count(counts.admitted), "");
    row("queued", count(counts.queued), "of these, after a wait for a slot");
    row("rejected", count(counts.rejected), "503: no slot came free");
    let some = [
        ("no_worker", counts.no_worker, "no pod took requests"),
        ("rate_limited", counts.rate_limited, "429: the limits of a tenant"),
        ("database_errors", counts.database_errors, "the key could not be looked up"),
        ("failed", counts.failed, "after all attempts"),
        ("killed", counts.killed, "with their pod"),
        ("forgotten", counts.forgotten, "their clients had hung up"),
    ];
    for (name, value, note) in some.into_iter().filter(|(_, value, _)| *value > 0) {
        row(name, count(value), note);
    }
    row("retried", count(counts.retried), "tries after a failure");
    if counts.hung_up > 0 {
        row("hung up", count(counts.hung_up), "by clients whose answer did not begin in time");
    }
    row("asked again", count(counts.asked_again), "by clients that were refused or hung up");
    row("given up", count(counts.given_up), "calls, by their clients");
    if let Some(overhead) = gateway.overhead {
        let note = "from arrival to the first attempt";
        row("overhead p50, s", short(overhead.p50), note);
        row("overhead p95, s", short(overhead.p95), "");
        row("overhead p99, s", short(overhead.p99), "");
    }
    if let Some(wait) = gateway.admission_wait {
        row("wait for a slot p95, s", short(wait.p95), "of those queued");
    }
    row("CPU utilisation", percent_or_dash(gateway.cpu_utilisation), "of all pods' cores");
    if let Some(utilisation) = gateway.counter_utilisation {
        let note = format!("{} counts of tokens", count(counts.token_counts));
        row("counter utilisation", percent(utilisation), &note);
    }
    let note = "calls that went where the session's call before had gone";
    row("stayed", percent_or_dash(gateway.stayed), note);
    kept(gateway, &mut table);
    table
}

/// What it remembers, itself or in its stores.
fn kept(gateway: &GatewayFigures, table: &mut Table) {
    let counts = &gateway.counts;
    let count = |value: u64| grouped(value as i64);
    let mut row = |name: &str, value: String, note: &str| {
        table.add_row([Cell::new(name), right(value), Cell::new(note)]);
    };
    if counts.pin_hits + counts.pin_misses > 0 {
        let note = format!("{} without one", count(counts.pin_misses));
        row("pins found", count(counts.pin_hits), &note);
        row("pins evicted", count(counts.evicted_pins), "before their time");
    }
    if counts.key_queries > 0 {
        row("keys looked up", count(counts.key_queries), "in the database");
    }
    if gateway.connections_max > 0 {
        let note = format!("{} refused", count(counts.connections_refused));
        row("connections max", gateway.connections_max.to_string(), &note);
        let note = format!(
            "{} written, {} lost",
            count(counts.spend_rows_written),
            count(counts.spend_rows_lost)
        );
        row("spend queue max, bytes", count(gateway.spend_queue_bytes_max), &note);
    }
    if let Some(usd) = gateway.spend_usd_lost.filter(|usd| *usd > 0.0) {
        row("spend lost, USD", short(usd), "of rows that were dropped");
    }
    if counts.redis_stood_in > 0 {
        let note = format!("breakers opened {} times", count(counts.breakers_opened));
        row("Redis stood in for", count(counts.redis_stood_in), &note);
    }
}

/// One row a set that is scaled.
pub(super) fn scaling(sets: [(&str, Option<Scaling>); 2]) -> Option<Table> {
    sets.iter().any(|(_, set)| set.is_some()).then(|| {
        let columns = ["autoscaled", "mean", "serving, mean", "max", "changes"];
        let mut table = table(&columns);
        for (name, set) in sets {
            let Some(set) = set else { continue };
            table.add_row([
                Cell::new(name),
                right(short(set.held_mean)),
                right(short_or_dash(Some(set.serving_mean))),
                right(set.held_max.to_string()),
                right(grouped(set.changes as i64)),
            ]);
        }
        table
    })
}
