//! What can never come to an end ends the run, with a name.
//!
//! vLLM's front end refuses a context that the KV cache cannot hold, its scheduler does not: fed
//! directly, it blocks its queue or preempts the same request for ever.

use tonnage::engine::config::Pool;
use tonnage::engine::{Stuck, StuckCause};
use tonnage::units::{Blocks, RequestId, Tokens};
use tonnage::validate::recording::{RecordedConfig, RecordedFinish, RecordedRequest};

use super::reference::generate;
use super::rig::{Rig, ask, fleet, play, roomy};

/// Four blocks of 16 tokens.
fn small() -> RecordedConfig {
    RecordedConfig { num_gpu_blocks: 5, ..roomy() }
}

fn stuck(request: u32, cause: StuckCause, needed: u64, running: usize, waiting: usize) -> Stuck {
    Stuck {
        head: RequestId(request),
        cause,
        needed: Blocks(needed),
        blocks: Some(Blocks(4)),
        running,
        waiting,
    }
}

#[test]
fn a_prompt_larger_than_the_pool_is_named() {
    for reserve in [true, false] {
        for asynchronous in [true, false] {
            let config = RecordedConfig {
                scheduler_reserve_full_isl: reserve,
                async_scheduling: asynchronous,
                ..small()
            };
            let mut rig = Rig::new(config, vec![ask(&[(1, 65)], 2, 1)]);
            assert_eq!(rig.run(1), Some(stuck(0, StuckCause::Admission, 5, 0, 1)));
            assert_eq!(rig.finished(), []);
        }
    }
}

/// What ran before it ends; what stands behind it is counted.
#[test]
fn a_queue_that_can_never_drain_is_named() {
    let requests = [30, 100, 10, 10].map(|prompt| ask(&[(prompt, prompt)], 2, 3)).to_vec();
    let mut rig = Rig::new(small(), requests);
    assert_eq!(rig.run(4), Some(stuck(1, StuckCause::Admission, 7, 0, 3)));
    assert_eq!(rig.finished(), [(RequestId(0), Tokens(3))]);
}

/// Without a hit its first chunk always fits, so that without the gate for the whole length it is
/// admitted again and again.
#[test]
fn a_preemption_loop_without_progress_is_named() {
    for asynchronous in [true, false] {
        let config = RecordedConfig {
            scheduler_reserve_full_isl: false,
            enable_prefix_caching: false,
            max_num_batched_tokens: 32,
            async_scheduling: asynchronous,
            ..small()
        };
        let mut rig = Rig::new(config, vec![ask(&[(1, 20)], 2, 100), ask(&[(3, 10)], 4, 1)]);
        assert_eq!(rig.run(2), Some(stuck(0, StuckCause::Growth, 5, 0, 1)));
        assert_eq!(rig.finished(), [(RequestId(1), Tokens(1))]);
    }
}

#[test]
fn an_answer_that_outgrows_the_pool_is_named() {
    let requests = || vec![ask(&[(1, 60)], 2, 100)];
    let mut rig = Rig::new(small(), requests());
    assert_eq!(rig.run(1), Some(stuck(0, StuckCause::Growth, 5, 0, 1)));
    // With a token in flight nobody knows that it was not the last one, until the request is to
    // be admitted again.
    let config = RecordedConfig { async_scheduling: true, ..small() };
    assert_eq!(Rig::new(config, requests()).run(1), Some(stuck(0, StuckCause::Admission, 5, 0, 1)));
}

/// The same situation, but the token in flight is its last.
#[test]
fn a_stop_token_that_comes_just_in_time_is_no_standstill() {
    let config = RecordedConfig { async_scheduling: true, ..small() };
    let stops = RecordedRequest { finish: RecordedFinish::Stop, ..ask(&[(1, 60)], 2, 5) };
    let mut rig = Rig::new(config, vec![stops]);
    assert_eq!(rig.run(1), None);
    assert_eq!((rig.preemptions(), rig.finished()), (1, vec![(RequestId(0), Tokens(5))]));
}

#[test]
fn a_prompt_without_room_for_an_output_is_named() {
    let config = RecordedConfig { max_model_len: 40, ..small() };
    let mut rig = Rig::new(config, vec![ask(&[(1, 40)], 2, 1), ask(&[(3, 8)], 4, 2)]);
    assert_eq!(rig.run(2), Some(stuck(0, StuckCause::Context, 3, 1, 0)));
    assert_eq!(rig.finished(), [(RequestId(1), Tokens(2))]);
}

/// Whatever the workload: every request ends, or a standstill is named.
#[test]
fn random_workloads_end_or_are_named() {
    let mut causes = [0; 2];
    for seed in 0..150 {
        let mut recording = generate::workload(seed);
        recording.config.scheduler_reserve_full_isl = seed % 3 == 0;
        recording.config.max_model_len += recording.config.max_model_len / (1 + seed % 5);
        let requests = recording.requests.len();
        let mut rig = Rig::new(recording.config, recording.requests);
        match rig.run(requests) {
            None => assert_eq!(rig.finished().len(), requests, "seed {seed}"),
            Some(stuck) => {
                assert!(stuck.needed > stuck.blocks.unwrap(), "seed {seed}: {stuck:?}");
                causes[usize::from(stuck.cause == StuckCause::Growth)] += 1;
            }
        }
    }
    assert!(causes.iter().all(|&count| count > 5), "{causes:?}");
}

/// Head, its blocks, the pool, what runs and what waits.
#[test]
fn a_fleet_says_who_holds_it_up() {
    let mut setup = fleet(&["engine.max_model_len=4096"]);
    setup.engine.pool = Pool::Limited(Blocks(101));
    let run = play(
        &setup,
        "s1,0,0,,0,user,0,,0,500,200
         s1,1,9,0,0,tool,0,,0,2000,20
         s2,0,1,,0,user,0,,0,100,20
         s3,0,900,,0,user,0,,0,100,20",
    );
    assert_eq!(
        run.stuck.as_deref(),
        Some(
            "call 1 of session 0 (a prompt of 2000 tokens) on replica 0 can never be admitted: it \
             takes 125 blocks and there are 100; running 0, waiting 1"
        )
    );
    assert_eq!(run.records.calls.len(), 2);
}
