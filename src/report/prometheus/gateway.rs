//! What the gateway's `/metrics` would show of the measured window: under LiteLLM's names where it
//! has them, else under the names of `/health/backlog` with the prefix `tonnage:gateway_`.

use std::fmt::Write as _;

use crate::fleet::GatewayUse;
use crate::gateway::metrics::GatewayCounts;
use crate::stats::LogHistogram;
use crate::units::Span;

/// Bounds of the gateway's own time, in milliseconds.
const OVERHEAD_MS: [u64; 16] =
    [5, 10, 20, 30, 50, 75, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000];

/// A counter: name, meaning, value.
type Counter = (&'static str, &'static str, fn(&GatewayCounts) -> u64);

/// Those that LiteLLM has. What admission turns away never reaches the proxy's own counters.
const LITELLM: [Counter; 4] = [
    ("litellm_proxy_total_requests_metric", "Requests that the proxy took in.", |counts| {
        counts.offered - counts.rejected - counts.no_worker
    }),
    ("litellm_proxy_failed_requests_metric", "Of these, failed.", |counts| {
        counts.failed + counts.rate_limited + counts.database_errors
    }),
    ("litellm_deployment_total_requests", "Requests sent to replicas.", |counts| counts.attempts),
    ("litellm_deployment_cooled_down", "Times that a deployment was left alone.", |counts| {
        counts.cooldowns
    }),
];

/// Those that it has not, or under `/health/backlog` only.
const OWN: [Counter; 20] = [
    ("admitted", "Requests that got a slot.", |counts| counts.admitted),
    ("queued", "Of these, after a wait.", |counts| counts.queued),
    ("rejected", "Requests that got none.", |counts| counts.rejected),
    ("no_worker", "Requests that found no pod.", |counts| counts.no_worker),
    ("rate_limited", "Requests beyond the limits of a tenant.", |counts| counts.rate_limited),
    ("database_errors", "Requests whose key was not found out.", |counts| counts.database_errors),
    ("retried", "Tries after a failure.", |counts| counts.retried),
    ("fallbacks", "Other groups tried.", |counts| counts.fallbacks),
    ("timeouts", "Attempts that ran into the timeout.", |counts| counts.timeouts),
    ("hung_up", "Requests whose client hung up.", |counts| counts.hung_up),
    ("forgotten", "Requests that ended so.", |counts| counts.forgotten),
    ("token_counts", "Counts of tokens.", |counts| counts.token_counts),
    ("pin_hits", "Requests whose pin was found.", |counts| counts.pin_hits),
    ("pin_misses", "Requests without one.", |counts| counts.pin_misses),
    ("evicted_pins", "Pins that went before their time.", |counts| counts.evicted_pins),
    ("key_queries", "Keys looked up.", |counts| counts.key_queries),
    ("connections_refused", "Connections that were refused.", |counts| counts.connections_refused),
    ("spend_rows_written", "Spend rows written.", |counts| counts.spend_rows_written),
    ("spend_rows_lost", "Spend rows lost.", |counts| counts.spend_rows_lost),
    ("redis_stood_in", "Redis operations done without it.", |counts| counts.redis_stood_in),
];

/// Appends the page of a gateway.
pub(super) fn write(used: &GatewayUse, text: &mut String) {
    let mut counter = |name: &str, help: &str, value: u64| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
    };
    for (name, help, value) in LITELLM {
        counter(&format!("{name}_total"), help, value(&used.counts));
    }
    for (name, help, value) in OWN {
        counter(&format!("tonnage:gateway_{name}_total"), help, value(&used.counts));
    }
    let mut gauge = |name: &str, help: &str, value: f64| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    };
    gauge("tonnage:gateway_in_flight", "Requests at the end of the run.", used.open as f64);
    if let Some(share) = used.cpu_share() {
        gauge("tonnage:gateway_cpu_ratio", "Core time used.", share);
    }
    if let Some(share) = used.counter_utilisation() {
        gauge("tonnage:gateway_counter_ratio", "Time of counting slots in use.", share);
    }
    gauge("tonnage:gateway_connections_max", "Connections.", f64::from(used.connections_max));
    let bytes = used.spend_bytes_max.0 as f64;
    gauge("tonnage:gateway_spend_queue_bytes_max", "Bytes that waited in a worker.", bytes);
    histogram("litellm_overhead_latency_metric", &used.overhead, text);
}

/// Samples in nanoseconds as a histogram in seconds.
fn histogram(name: &str, samples: &LogHistogram, text: &mut String) {
    let help = "From a request's arrival to its first attempt.";
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
    for bound in OVERHEAD_MS {
        let nanos = Span::from_millis(bound).0 as f64;
        let below = samples.buckets().take_while(|(middle, _)| *middle <= nanos);
        let upto: u64 = below.map(|(_, count)| count).sum();
        let bound = super::number_text(bound, 1e3);
        let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {upto}");
    }
    let (count, mean) = (samples.count(), samples.mean().unwrap_or(0.0));
    let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "{name}_sum {}", mean * count as f64 / 1e9);
    let _ = writeln!(text, "{name}_count {count}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_up_to_each_bound() {
        let mut samples = LogHistogram::default();
        [4, 15, 15, 70_000].iter().for_each(|&ms| samples.add(Span::from_millis(ms).0));
        let mut text = String::new();
        histogram("x", &samples, &mut text);
        for line in [
            "x_bucket{le=\"0.005\"} 1",
            "x_bucket{le=\"0.02\"} 3",
            "x_bucket{le=\"300.0\"} 4",
            "x_bucket{le=\"+Inf\"} 4",
            "x_sum 70.034",
            "x_count 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
