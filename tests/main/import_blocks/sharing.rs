//! However ids are spread over sessions: the imported lineage shares exactly the blocks that the
//! ids share.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::json;
use tonnage::trace::import::{Options, Outputs};
use tonnage::trace::meta::PartialBlock;
use tonnage::trace::record::Trace;
use tonnage::trace::summary::prompts::PromptBlocks;

use super::try_import;

const BLOCK: u64 = 10;

/// The blocks of every prompt, by session and call.
pub fn prompts(trace: &Trace, block_size: u64, partial: PartialBlock) -> Vec<Vec<Vec<u32>>> {
    let mut blocks = PromptBlocks::new(block_size, partial);
    for context in &trace.contexts {
        blocks.context(context).unwrap();
    }
    let sessions = trace.sessions.iter().map(|session| {
        let mut of_session = Vec::new();
        let collect = |_, _: &_, runs: &[tonnage::trace::summary::blocks::BlockRun]| {
            of_session.push(runs.iter().flat_map(|run| run.ids()).collect());
        };
        blocks.session(session, collect).unwrap();
        of_session
    });
    sessions.collect()
}

/// Whether two lists of prompts name the same blocks, by whatever ids.
pub fn assert_alike(a: &[Vec<u64>], b: &[Vec<u32>]) -> Result<(), TestCaseError> {
    let (mut there, mut back) = (BTreeMap::new(), BTreeMap::new());
    prop_assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        prop_assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            prop_assert_eq!(there.entry(*a).or_insert(*b), b, "{} is two blocks", a);
            prop_assert_eq!(back.entry(*b).or_insert(*a), a, "{} is two blocks", b);
        }
    }
    Ok(())
}

/// A prompt: its session, which earlier one it continues, how far, and how it goes on.
#[derive(Clone, Copy, Debug)]
struct Seed {
    session: u32,
    base: u8,
    kept: u64,
    new: u64,
    tail: u64,
    /// Whether it is its base once more.
    again: bool,
    output: u64,
}

fn seeds() -> impl Strategy<Value = Vec<Seed>> {
    let seed =
        (0u32..5, 0u8..8, 0u64..6, 0u64..4, 0u64..BLOCK, prop::bool::weighted(0.2), 0u64..25);
    let seed = seed.prop_map(|(session, base, kept, new, tail, again, output)| Seed {
        session,
        base,
        kept,
        new,
        tail,
        again,
        output,
    });
    prop::collection::vec(seed, 1..24)
}

/// Prompts as whole-block ids and the length; a partial block's id is its own, unless the prompt
/// is an earlier one again.
fn grown(seeds: &[Seed]) -> Vec<(Vec<u64>, u64)> {
    let mut next = 0;
    let mut id = move || {
        // Neighbours are not always consecutive, so that prompts are several runs.
        next += 1 + u64::from(next % 3 == 0);
        next
    };
    let mut all: Vec<(Vec<u64>, u64)> = Vec::new();
    for seed in seeds {
        let base = all.get(seed.base as usize % all.len().max(1)).cloned();
        let (mut ids, length) = base.unwrap_or_default();
        if seed.again && length > 0 {
            all.push((ids, length));
            continue;
        }
        ids.truncate((length / BLOCK).min(seed.kept) as usize);
        ids.extend((0..seed.new).map(|_| id()));
        let length = ids.len() as u64 * BLOCK + seed.tail;
        let length = if length == 0 { 1 } else { length };
        if !length.is_multiple_of(BLOCK) {
            ids.push(id());
        }
        all.push((ids, length));
    }
    all
}

proptest! {
    #[test]
    fn the_lineage_shares_what_the_ids_share(
        seeds in seeds(),
        partial in prop::sample::select(vec![PartialBlock::Count, PartialBlock::Drop]),
        outputs in prop::sample::select(Outputs::ALL.to_vec()),
        alone in any::<bool>(),
    ) {
        let mut text = String::new();
        // The order in which sessions begin, and their calls' places in it.
        let mut sessions: Vec<u32> = Vec::new();
        let mut expected: Vec<Vec<Vec<u64>>> = Vec::new();
        for (number, (seed, (mut ids, length))) in seeds.iter().zip(grown(&seeds)).enumerate() {
            if partial == PartialBlock::Drop {
                ids.truncate((length / BLOCK) as usize);
            }
            let session = if alone { number as u32 } else { seed.session };
            let row = json!({"timestamp": number * 1_000, "input_length": length,
                "output_length": seed.output, "hash_ids": ids, "session_id": session});
            writeln!(text, "{row}").unwrap();
            let place = sessions.iter().position(|known| *known == session);
            match place {
                Some(place) => expected[place].push(ids),
                None => {
                    sessions.push(session);
                    expected.push(vec![ids]);
                }
            }
        }
        let options = Options { outputs, block_size: Some(BLOCK), ..Options::default() };
        let (trace, _) = try_import("mooncake", &text, &options).unwrap();
        let found = prompts(&trace, BLOCK, partial);
        prop_assert_eq!(found.len(), expected.len());
        let flat: Vec<Vec<u64>> = expected.into_iter().flatten().collect();
        let found: Vec<Vec<u32>> = found.into_iter().flatten().collect();
        assert_alike(&flat, &found)?;
    }
}
