//! What a trace holds: counts, percentiles, sharing, and what caches of given sizes would hit.
//!
//! The figures are those of a merged timeline: all calls of all sessions in the order of their
//! recorded dispatch. Prompts only are counted, never outputs: a block that a reply filled counts
//! as new in the first prompt that repeats it.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::diag::Result;
use crate::trace::meta::PartialBlock;
use crate::trace::record::Item;

pub mod arrival;
pub mod blocks;
pub mod cache;
mod collect;
pub mod dist;
pub mod prompts;
pub mod sessions;
pub mod traffic;

use cache::{LruFigures, Touch};
use collect::Collector;
use dist::Dist;
use sessions::Sessions;
use traffic::{Hits, Traffic};

/// What to compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Tokens in a block.
    pub block_size: u64,
    /// What becomes of a prompt's last, partial block.
    pub partial_block: PartialBlock,
    /// Calls whose last whole block does not count: by session, call numbers.
    pub unnumbered_blocks: BTreeMap<String, Vec<u32>>,
    /// Sizes of LRU caches, in blocks, that touch a prompt from its tail to its head.
    pub lru: Vec<u64>,
    /// Sizes of LRU caches that touch a prompt from its head to its tail.
    pub lru_forward: Vec<u64>,
}

/// The figures of a trace. A figure that has no value (a ratio of nothing) is `None`.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Tokens in a block.
    pub block_size: u64,
    /// Whether a last, partial block counts.
    pub partial_block: PartialBlock,
    /// Figures of the calls.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Figures of the sessions.
    #[serde(flatten)]
    pub sessions: Sessions,
    /// LRU caches, touched from tail to head.
    pub lru: Vec<LruFigures>,
    /// LRU caches, touched from head to tail.
    pub lru_forward: Vec<LruFigures>,
    /// What the trace's own columns say of turns, causes and gaps.
    pub columns: Columns,
    /// Figures that other tools give of such data and that a canonical trace cannot give.
    #[serde(serialize_with = "as_map")]
    pub not_carried: Vec<(&'static str, &'static str)>,
}

/// Figures of the columns `status`, `cause`, `turn` and `gap_s` as they stand.
#[derive(Clone, Debug, Serialize)]
pub struct Columns {
    /// Calls by status.
    #[serde(serialize_with = "as_map")]
    pub status: Vec<(&'static str, u64)>,
    /// Calls by cause.
    #[serde(serialize_with = "as_map")]
    pub cause: Vec<(&'static str, u64)>,
    /// `gap_s` by cause; a session's first call, which has no gap, is left out.
    #[serde(serialize_with = "as_map")]
    pub gap_s: Vec<(&'static str, Option<Dist<f64>>)>,
    /// Different turns of a session, in the main lane.
    pub turns_per_session: Option<Dist<i64>>,
    /// Main-lane calls of a turn.
    pub calls_per_numbered_turn: Option<Dist<i64>>,
    /// Shared contexts.
    pub shared_contexts: u64,
}

fn as_map<K: AsRef<str>, V: Serialize, S: Serializer>(
    pairs: &[(K, V)],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key.as_ref(), value)))
}

const NO_STOP: &str = "needs the reason why each call stopped (tool use or end of turn), which the \
                       trace does not keep; columns.gap_s goes by the cause of the later call";
const NO_STOP_TURN: &str = "needs turns as ended by any stop but tool use, and the trace does not \
                            keep stops; columns.calls_per_numbered_turn goes by the turn column";

/// Keys of the reference figures that no canonical trace can answer, with the reason.
const NOT_CARRIED: [(&str, &str); 12] = [
    ("name", "a trace has no name but its file's"),
    ("stagger_s", "the sessions' starts are in the trace itself"),
    ("tool_plus_system_tokens", "the trace does not tell parts of a prompt apart by their role"),
    ("tool_gap_s", NO_STOP),
    ("user_gap_s", NO_STOP),
    ("gap_spanning_subagent_s", NO_STOP),
    ("other_gap_s", NO_STOP),
    ("stop_reasons", NO_STOP),
    ("calls_per_turn", NO_STOP_TURN),
    ("turn_step_hit_tokens", NO_STOP_TURN),
    ("per_call_hit_within_turn", NO_STOP_TURN),
    ("per_call_hit_first_of_turn", NO_STOP_TURN),
];

/// Computes the figures of a trace.
///
/// # Errors
/// The first error of `items`, or a trace of too many blocks.
pub fn summarise(
    items: impl IntoIterator<Item = Result<Item>>,
    options: &Options,
) -> Result<Summary> {
    let mut collector = Collector::new(options);
    for item in items {
        match item? {
            Item::Context(context) => collector.context(&context)?,
            Item::Session(session) => collector.session(&session)?,
        }
    }
    Ok(summary(collector, options))
}

fn summary(mut all: Collector, options: &Options) -> Summary {
    // Stable: calls of one instant stay in the order of sessions and calls.
    all.calls.sort_by_key(|call| call.at_micros);
    let prompts = all.prompts();
    let (hits, unique_blocks) = cache::infinite(&prompts);
    let lru = cache::lru(&prompts, Touch::TailFirst, &options.lru);
    let lru_forward = cache::lru(&prompts, Touch::HeadFirst, &options.lru_forward);
    let hits = Hits::new(&prompts, &hits, unique_blocks);
    Summary {
        block_size: options.block_size,
        partial_block: options.partial_block,
        traffic: Traffic::of(&all, &hits),
        columns: all.columns(),
        sessions: Sessions::of(&mut all, &hits.tokens),
        lru,
        lru_forward,
        not_carried: NOT_CARRIED.to_vec(),
    }
}
