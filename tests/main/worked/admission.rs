//! What a full API server refuses, and what its clients do then.

use tonnage::config::scenario::Client;
use tonnage::fleet::Setup;
use tonnage::fleet::admission::Limits;
use tonnage::observe::records::CallOutcome;
use tonnage::trace::record::Trace;
use tonnage::units::{Span, Tokens};

use super::super::given::{With, call, play, record, setup, trace};

/// Two sessions that ask at the same instant.
fn two_at_once() -> Trace {
    trace(vec![(0, vec![call(1_000, 40)]), (0, vec![call(1_000, 40)])])
}

fn limited(limits: Limits, max_retries: u32, wait_secs: u64) -> Setup {
    let wait = Span::from_secs(wait_secs);
    Setup { limits, client: Client { max_retries, retry_base: wait, retry_max: wait }, ..setup() }
}

const ONE: Limits = Limits { max_num_queued_reqs: Some(1), max_num_queued_tokens: None };

#[test]
fn who_is_refused_asks_again_and_is_served_later() {
    let run = play(&limited(ONE, 2, 60), &two_at_once());
    let (first, second) = (record(&run, 0, 0), record(&run, 1, 0));
    assert_eq!((first.refusals, second.refusals), (0, 1));
    assert_eq!(second.outcome, CallOutcome::Completed);
    // A wait of 60 s with up to a quarter of it taken off; the time counts from the first asking.
    let waited = (second.queued - second.dispatched).secs();
    assert!((45.0..=60.0).contains(&waited), "{waited}");
    assert_eq!(second.ttft(), second.first_token - second.dispatched);
    assert!(second.ttft().secs() > waited);
}

#[test]
fn who_is_refused_too_often_has_failed_and_its_session_goes_on() {
    let mut sessions = two_at_once();
    sessions.sessions[1].calls.push(call(500, 3).after("0").gap(120_000));
    let run = play(&limited(ONE, 0, 1), &sessions);
    let refused = record(&run, 1, 0);
    assert_eq!((refused.outcome, refused.refusals), (CallOutcome::Refused, 1));
    assert_eq!((refused.ended, refused.output), (refused.dispatched, Tokens::ZERO));
    assert_eq!(record(&run, 1, 1).outcome, CallOutcome::Completed);
    let failed = |session| {
        let task = run.records.tasks.iter().find(|task| task.session == session);
        task.unwrap().failed
    };
    assert_eq!((failed(0), failed(1)), (false, true));
}

#[test]
fn the_limit_on_tokens_ends_with_the_first_token() {
    let limits = Limits { max_num_queued_reqs: None, max_num_queued_tokens: Some(Tokens(1_000)) };
    // The first prompt is a backlog of 1,000 tokens until its first token, far less than 60 s.
    let run = play(&limited(limits, 1, 60), &two_at_once());
    assert_eq!((record(&run, 0, 0).refusals, record(&run, 1, 0).refusals), (0, 1));
    let roomy = Limits { max_num_queued_tokens: Some(Tokens(1_001)), ..limits };
    let run = play(&limited(roomy, 1, 60), &two_at_once());
    assert_eq!(record(&run, 1, 0).refusals, 0);
}
