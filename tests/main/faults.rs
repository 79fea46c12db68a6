//! Faults that other simulators of LLM serving have been found to have.

use tonnage::config::defaults::VllmVersion;
use tonnage::config::models;
use tonnage::config::scenario::Scenario;
use tonnage::engine::batch::Batch;
use tonnage::engine::config::Pool;
use tonnage::engine::scheduler::Scheduler;
use tonnage::fleet::Setup;
use tonnage::observe::records::{CallOutcome, CallRecord};
use tonnage::units::{Blocks, RequestId, Span, Time, Tokens};
use tonnage::validate::recording::RecordedConfig;

use super::rig::{Rig, ask, cost, fleet, play, recording, roomy};

/// The one preempted finds its own blocks again, and all come to their end.
#[test]
fn hits_survive_a_preemption() {
    let config = RecordedConfig { num_gpu_blocks: 13, ..roomy() };
    let mut rig = Rig::new(config, vec![ask(&[(1, 80)], 2, 60), ask(&[(3, 80)], 4, 60)]);
    assert_eq!(rig.run(2), None);
    assert_eq!(rig.cached(0), [0], "the first is never preempted");
    // The first takes blocks from the tail of what the second has left: six of its seven blocks
    // were full, and three are there when it is admitted again.
    assert_eq!(rig.preemptions(), 1);
    assert_eq!(rig.cached(1), [0, 48]);
    assert_eq!(rig.finished(), [0, 1].map(|id| (RequestId(id), Tokens(60))));
}

/// Of 4 blocks that a first question leaves, others overwrite 2, then all.
#[test]
fn a_hash_does_not_outlive_its_block() {
    let config = RecordedConfig { num_gpu_blocks: 9, ..roomy() };
    let question = ask(&[(1, 65)], 2, 1);
    let requests = vec![
        question.clone(),
        ask(&[(3, 96)], 4, 1),
        question.clone(),
        ask(&[(5, 128)], 6, 1),
        question,
    ];
    let mut rig = Rig::new(config, requests);
    (0..5).for_each(|_| assert_eq!(rig.run(1), None));
    let cached: Vec<u64> = [0, 2, 4].iter().flat_map(|&id| rig.cached(id)).collect();
    assert_eq!(cached, [0, 32, 0]);
}

/// Chunks that end inside blocks, at other places for each request, give the same keys; the same
/// tokens one block further on give others.
#[test]
fn blocks_are_known_by_their_position_in_the_prompt_not_in_the_chunk() {
    let config = RecordedConfig { max_num_batched_tokens: 23, ..roomy() };
    let requests = vec![
        ask(&[(1, 163)], 2, 1),
        ask(&[(1, 163), (3, 40)], 4, 1),
        ask(&[(5, 16), (1, 163)], 6, 1),
        ask(&[(1, 163), (3, 40), (7, 9)], 8, 1),
    ];
    let mut rig = Rig::new(config, requests);
    (0..4).for_each(|_| assert_eq!(rig.run(1), None));
    let cached: Vec<u64> = (0..4).flat_map(|id| rig.cached(id)).collect();
    assert_eq!(cached, [0, 160, 0, 192]);
}

#[test]
fn hits_are_counted_once_per_admission_not_per_chunk() {
    let config = RecordedConfig { max_num_batched_tokens: 16, ..roomy() };
    let requests = vec![ask(&[(1, 64)], 2, 1), ask(&[(1, 64), (3, 96)], 4, 1)];
    let recording = recording(config, requests);
    let mut scheduler = Scheduler::new(recording.engine(VllmVersion::default()));
    let (mut batch, mut outputs) = (Batch::default(), Vec::new());
    let (mut queries, mut hits, mut steps) = (0, 0, 0);
    for request in recording.workload() {
        scheduler.add(request);
        while scheduler.has_requests() {
            scheduler.schedule(&mut batch);
            scheduler.update(Time::ZERO, &batch, &mut outputs);
            queries += batch.counters.queries;
            hits += batch.counters.hits;
            steps += 1;
        }
    }
    assert_eq!((queries, hits, steps), (64 + 160, 64, 4 + 6));
}

/// A request holds what it has grown to, and that is what makes others wait or go.
#[test]
fn growth_after_admission_takes_blocks() {
    let grows = || ask(&[(1, 8)], 2, 200);
    let mut rig = Rig::new(roomy(), vec![grows()]);
    assert_eq!(rig.run(1), None);
    let used: Vec<u64> = rig.steps().iter().map(|step| step.used_blocks.0).collect();
    let expected: Vec<u64> = (0..200u64).map(|step| (8 + step).div_ceil(16)).collect();
    assert_eq!(used, expected);

    // Both fit when they are admitted, one does not when both have grown.
    let config = RecordedConfig { num_gpu_blocks: 21, ..roomy() };
    let mut rig = Rig::new(config, vec![grows(), ask(&[(3, 8)], 4, 200)]);
    assert_eq!(rig.run(2), None);
    assert_eq!(rig.preemptions(), 1);
}

#[test]
fn blocks_and_utilisation_given_by_the_user_are_used() {
    let blocks = |key: &str| match fleet(&["engine.max_model_len=8192", key]).engine.pool {
        Pool::Limited(blocks) => blocks.0,
        Pool::Unlimited => 0,
    };
    assert_eq!(blocks("engine.num_gpu_blocks_override=5000"), 5_000);
    assert_eq!(blocks("engine.num_gpu_blocks_override=600"), 600);
    // A hundredth of 80 GB, in blocks of 2 MiB.
    let (less, more) = (
        blocks("engine.gpu_memory_utilization=0.50"),
        blocks("engine.gpu_memory_utilization=0.51"),
    );
    assert!((381..=410).contains(&(more - less)), "{less} {more}");

    // And the fleet keeps to them: 599 blocks hold 9,584 tokens.
    let setup = fleet(&["engine.max_model_len=8192", "engine.num_gpu_blocks_override=600"]);
    let run = play(&setup, "s1,0,0,,0,user,0,,0,8000,10 s2,0,0,,0,user,0,,0,8000,10");
    let [first, second] = run.records.calls[..] else { panic!("two calls") };
    assert!(second.scheduled >= first.last_token, "both cannot be in the cache");
}

/// Every GPU of the group reads the whole latent KV; heads are divided.
#[test]
fn latent_kv_is_read_whole_on_every_gpu() {
    let kv_ms = |model: &str, tp: u32| {
        let cost = cost(model, tp);
        let mut load = cost.empty_load();
        load.add_decode(10_000);
        cost.cost(&load).kv_ms
    };
    let latent = kv_ms("DeepSeek-V3", 1);
    assert!(latent > 0.0);
    for tp in [2, 4, 8] {
        assert_eq!(kv_ms("DeepSeek-V3", tp), latent);
        let heads = kv_ms("Llama-3.1-8B", 1) / kv_ms("Llama-3.1-8B", tp);
        assert!((heads - f64::from(tp)).abs() < 1e-9, "{heads}");
    }
    // Nor is the room that it takes.
    let model = models::find("DeepSeek-V3").unwrap();
    assert_eq!(model.kv_elements_per_gpu(8), model.kv_elements_per_gpu(1));
}

/// See `livelock` for everything else that cannot end.
#[test]
fn a_prompt_larger_than_the_pool_ends_with_a_name() {
    let mut setup = fleet(&["engine.max_model_len=4096"]);
    setup.engine.pool = Pool::Limited(Blocks(101));
    let run = play(&setup, "s1,0,0,,0,user,0,,0,1601,10 s2,0,0,,0,user,0,,0,5,10");
    let why = run.stuck.unwrap();
    assert!(why.contains("(a prompt of 1601 tokens) on replica 0 can never be admitted"), "{why}");
    // Through a scenario it does not come so far.
    let keys = ["engine.model=Llama-3.1-8B", "engine.gpu=h100-sxm", "engine.max_model_len=4096"];
    let keys = keys.map(str::to_owned).to_vec();
    let keys = [keys, vec!["engine.num_gpu_blocks_override=101".to_owned()]].concat();
    let error = Scenario::parse("", "test", &keys).unwrap_err().to_string();
    assert!(error.contains("max_model_len"), "{error}");
}

/// Every token is computed, or the client is told that the prompt cannot be served.
#[test]
fn no_prompt_is_truncated_in_silence() {
    let mut rig = Rig::new(roomy(), vec![ask(&[(1, 1_500)], 2, 3)]);
    assert_eq!(rig.run(1), None);
    let prefilled: u64 = rig.steps().iter().map(|step| step.prefill_tokens.0).sum();
    assert_eq!(prefilled, 1_500);

    let run = play(
        &fleet(&["engine.max_model_len=8192"]),
        "s1,0,0,,0,user,0,,0,8000,192 s1,1,9,0,0,tool,0,0,8000,8001,192 s1,2,9,1,0,tool,0,,0,8,1",
    );
    let [fits, too_long, next] = run.records.calls[..] else { panic!("three calls") };
    assert_eq!((fits.outcome, fits.prefilled), (CallOutcome::Completed, Tokens(8_000)));
    assert_eq!((too_long.outcome, too_long.prompt), (CallOutcome::Rejected, Tokens(8_001)));
    assert_eq!((too_long.replica, too_long.output), (None, Tokens(0)));
    assert_eq!(next.outcome, CallOutcome::Completed);
}

fn roomy_fleet() -> Setup {
    fleet(&["engine.max_model_len=100000"])
}

/// A main agent, two subagents at once with two calls each, and the main agent again.
#[test]
fn subagents_are_played_and_parallel_calls_overlap() {
    let run = play(
        &roomy_fleet(),
        "@t,,,,,,,,0,4000,
         s1,0,0,,0,user,0,@t,4000,5000,50
         s1,1,5,0,0.5,subagent,1,@t,4000,6000,100
         s1,2,5,0,0.5,subagent,2,@t,4000,6500,100
         s1,3,9,1,0,tool,1,1,6100,6300,10
         s1,4,9,2,0,tool,2,2,6600,6800,10
         s1,5,20,3;4,1,tool,0,0,5050,7000,20",
    );
    let mut calls = run.records.calls;
    calls.sort_by_key(|call| call.call);
    assert_eq!(calls.len(), 6);
    assert!(calls.iter().all(|call| call.outcome == CallOutcome::Completed));
    let [main, one, two, one_on, two_on, back] = calls[..] else { panic!("six calls") };
    let half = Span(500_000_000);
    assert_eq!([one, two].map(|call| call.dispatched), [main.ended + half; 2]);
    // Neither waits for the other: both decode in the same steps.
    assert!(one.first_token < two.last_token && two.first_token < one.last_token);
    assert_eq!((one_on.dispatched, two_on.dispatched), (one.ended, two.ended));
    assert_eq!(back.dispatched, one_on.ended.max(two_on.ended) + half + half);
}

/// A compaction in the trace, and one that the model's context makes necessary: the prompt is
/// shorter, what follows the kept part is new, and the session goes on from there.
#[test]
fn a_compaction_changes_the_context() {
    let recorded = "@t,,,,,,,,0,8000,
         s1,0,0,,0,user,0,@t,8000,60000,16
         s1,1,9,0,0,tool,0,0,8000,20000,16
         s1,2,9,1,0,tool,0,1,20016,21000,16";
    let run = play(&roomy_fleet(), recorded);
    let figures = |call: &CallRecord| (call.prompt.0, call.cached.0, call.prefilled.0);
    let calls: Vec<_> = run.records.calls.iter().map(figures).collect();
    // Of 20,016 tokens the last one was never computed, the block of 16 around it neither.
    assert_eq!(calls, [(60_000, 0, 60_000), (20_000, 8_000, 12_000), (21_000, 20_000, 1_000)]);

    let forced = "@t,,,,,,,,0,8000,
         s1,0,0,,0,user,0,@t,8000,60000,16
         s1,1,9,0,0,tool,0,0,60016,70000,16
         s1,2,9,1,0,tool,0,1,70016,71000,16";
    let setup = fleet(&["engine.max_model_len=64000", "fleet.on_overflow=compact"]);
    let run = play(&setup, forced);
    let calls: Vec<_> = run.records.calls.iter().map(figures).collect();
    assert_eq!(calls, [(60_000, 0, 60_000), (37_000, 8_000, 29_000), (38_000, 37_008, 992)]);
    let compacted: Vec<bool> = run.records.calls.iter().map(|call| call.compacted).collect();
    assert_eq!(compacted, [false, true, false]);
    assert!(run.records.calls.iter().all(|call| call.outcome == CallOutcome::Completed));
}
