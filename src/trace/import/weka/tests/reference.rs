//! The import against figures that an independent program counted from the same file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::trace::canonical::{self, Writer};
use crate::trace::import::weka::{Import, Options, Outputs, import};
use crate::trace::lineage::{self, BlockKey};
use crate::trace::record::{Base, Trace};
use crate::units::SegmentId;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/weka").join(name)
}

fn mini(options: &Options) -> Import {
    import(&[data("mini.jsonl.gz")], options).unwrap()
}

fn reference() -> Value {
    let text = fs::read_to_string(data("mini.stats.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The blocks of each prompt, told apart by lineage alone, in the order of dispatch.
fn prompts(trace: &Trace) -> Vec<Vec<BlockKey>> {
    let mut segments = (0..).map(SegmentId);
    let mut segment = || segments.next().unwrap();
    let mut shared: BTreeMap<&str, lineage::Path> = BTreeMap::new();
    for context in &trace.contexts {
        let base = context.base.as_ref().map(|base| shared[&**base].clone()).unwrap_or_default();
        let path = base.continued(context.kept_tokens, segment(), context.prompt_tokens);
        shared.insert(&context.name, path);
    }
    let mut prompts = Vec::new();
    for (number, session) in trace.sessions.iter().enumerate() {
        let mut contexts: Vec<lineage::Path> = Vec::new();
        for call in &session.calls {
            let base = match &call.base {
                Base::None => lineage::Path::default(),
                Base::Call(base) => contexts[*base as usize].clone(),
                Base::Shared(name) => shared[&**name].clone(),
            };
            let own = segment();
            let mut context = base.continued(call.kept_tokens, own, call.prompt_tokens);
            prompts.push((call.at, number, context.block_keys(64).collect()));
            context.extend(own, call.prompt_tokens + call.output_tokens);
            contexts.push(context);
        }
    }
    // The sort is stable: calls at one time stay in the order of their session.
    prompts.sort_by_key(|(at, session, _)| (*at, *session));
    prompts.into_iter().map(|(_, _, keys)| keys).collect()
}

/// Hits and evictions of a cache of so many blocks that forgets the least recently used one; a
/// prompt's tail is used before its head.
fn replay(prompts: &[Vec<BlockKey>], capacity: usize) -> (u64, u64) {
    let (mut used_at, mut by_use) = (BTreeMap::new(), BTreeMap::new());
    let (mut clock, mut hits, mut evictions) = (0u64, 0, 0);
    for prompt in prompts {
        hits += prompt.iter().take_while(|key| used_at.contains_key(*key)).count() as u64;
        for key in prompt.iter().rev() {
            clock += 1;
            by_use.insert(clock, *key);
            if let Some(before) = used_at.insert(*key, clock) {
                by_use.remove(&before);
            }
            if used_at.len() > capacity {
                let (_, oldest) = by_use.pop_first().unwrap();
                used_at.remove(&oldest);
                evictions += 1;
            }
        }
    }
    (hits, evictions)
}

#[test]
fn the_lineage_shares_exactly_the_blocks_that_the_ids_share() {
    let expected = reference();
    for outputs in [Outputs::Auto, Outputs::Kept, Outputs::Dropped] {
        let prompts = prompts(&mini(&Options { outputs, ..Options::default() }).trace);
        let total: usize = prompts.iter().map(Vec::len).sum();
        let distinct: BTreeSet<BlockKey> = prompts.iter().flatten().copied().collect();
        assert_eq!(expected["infinite"]["total_blocks"], total);
        assert_eq!(expected["infinite"]["unique_blocks"], distinct.len());
        let (hits, evictions) = replay(&prompts, usize::MAX);
        assert_eq!((&expected["infinite"]["prefix_hit_blocks"], evictions), (&hits.into(), 0));
    }
}

#[test]
fn a_limited_cache_hits_and_evicts_as_counted_from_the_ids() {
    let (expected, prompts) = (reference(), prompts(&mini(&Options::default()).trace));
    let sizes = [5_000, 20_000];
    for size in sizes {
        let lru = expected["lru"].as_array().unwrap();
        let row = lru.iter().find(|row| row["capacity_blocks"] == size).unwrap();
        let (hits, evictions) = replay(&prompts, size);
        assert_eq!(
            (&row["prefix_hit_blocks"], &row["evictions"]),
            (&hits.into(), &evictions.into())
        );
    }
}

#[test]
fn counts_and_turns_are_those_of_the_reference() {
    let (expected, import) = (reference(), mini(&Options::default()));
    let calls = || import.trace.sessions.iter().flat_map(|session| &session.calls);
    assert_eq!(expected["requests"], import.report.calls);
    assert_eq!(expected["sessions"], import.trace.sessions.len());
    assert_eq!(expected["tokens_in"], calls().map(|call| call.prompt_tokens.0).sum::<u64>());
    assert_eq!(expected["tokens_out"], calls().map(|call| call.output_tokens.0).sum::<u64>());
    let turns = &expected["calls_per_turn"];
    assert_eq!(turns["n"], import.report.calls_per_turn.len());
    for (name, share) in [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
        assert_eq!(turns[name], import.report.calls_per_turn_at(share).unwrap());
    }
    // What is not measured is estimated.
    let measured = calls().filter(|call| call.seen_duration.is_some()).count();
    assert_eq!(expected["api_time_s"]["n"], measured);
    assert_eq!(import.report.estimated, import.report.calls - measured as u64);
    let first = calls().map(|call| call.at).min().unwrap();
    let last = calls().map(|call| call.at).max().unwrap();
    assert_eq!(expected["arrival_on_merged_timeline"]["span_s"], (last - first).secs());
}

#[test]
fn the_trace_keeps_the_rules_and_is_read_back_as_it_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("mini.csv.zst");
    let trace = mini(&Options::default()).trace;
    let mut writer = Writer::create(&out).unwrap();
    for session in &trace.sessions {
        writer.session(session).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(canonical::read_all(&out), Ok(trace));
}
