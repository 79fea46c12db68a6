//! Who plays what and when, the measured window, and a task compared with itself alone.

use std::collections::BTreeMap;

use tonnage::config::load::{Load, LoadKind, Office};
use tonnage::config::scenario::Scenario;
use tonnage::fleet::population::{Population, Start};
use tonnage::fleet::workload::Workload;
use tonnage::fleet::{Run, Setup};
use tonnage::sizing::case::Case;
use tonnage::trace::record::{Call, Trace};
use tonnage::units::{Span, Time, Tokens};

use super::super::given::{
    With, call, lasting, load, play, record, setup, stretches, trace, trace_with,
};
use super::{decoding, on_paper};

/// A replica as a scenario sets it up, with so many blocks, and a context of 3,600 tokens.
fn case(trace: &Trace, blocks: u64) -> Case {
    let text = format!(
        "[engine]\nmodel = 'Llama-3.1-8B'\ngpu = 'h100-sxm'\nmax_model_len = 3600\n\
         num_gpu_blocks_override = {blocks}\n\
         [api]\nrequest_ms = 0\nprompt_token_us = 0\noutput_token_us = 0\n"
    );
    let scenario = Scenario::parse(&text, "test", &[]).unwrap();
    Case::new(scenario, trace, &[]).unwrap()
}

fn stretch(trace: &Trace, blocks: u64) -> f64 {
    let stretches = stretches(&case(trace, blocks), 1);
    assert_eq!(stretches.len(), 1);
    stretches[0].unwrap()
}

/// Two contexts in turn, the second of which is in the way of the first.
fn two_contexts() -> Trace {
    trace(vec![(
        0,
        vec![
            call(3_000, 2),
            call(3_000, 2).after("0").gap(1_000).lane(1),
            call(3_200, 2).after("1").gap(500).keeping(0, 3_002),
        ],
    )])
}

#[test]
fn an_undisturbed_task_has_stretch_1() {
    let growing = trace(vec![(
        0,
        vec![
            call(1_000, 5),
            call(2_000, 7).after("0").gap(3_000).keeping(0, 1_005),
            call(500, 4).after("1").lane(1),
            call(2_500, 3).after("1;2").keeping(1, 2_007),
            call(3_000, 9).after("3").gap(60_000).turn(1).keeping(3, 2_503),
        ],
    )]);
    let found = stretch(&growing, 1_000);
    assert!((found - 1.0).abs() < 1e-12, "{found}");
    assert!((stretch(&two_contexts(), 1_000) - 1.0).abs() < 1e-12);
}

#[test]
fn a_cache_that_is_too_small_stretches_a_task() {
    // 240 usable blocks. The first context leaves 187 full ones, the second takes 188: the 53
    // others and the first's last 135. The third call hits 52 of its 187 blocks. Alone it hits all.
    let both = |hit: u64| {
        let first = on_paper(&[], &[(0, 3_000, true)]) + decoding(&[3_001], 1);
        let third = on_paper(&[], &[(hit, 3_200 - hit, true)]) + decoding(&[3_201], 1);
        (first + first + third).as_f64()
    };
    let expected = both(52 * 16) / both(187 * 16);
    assert!(expected > 1.2, "{expected}");
    let found = stretch(&two_contexts(), 241);
    assert!((found - expected).abs() < 1e-8, "{found} is not {expected}");
}

#[test]
fn other_sessions_stretch_a_task() {
    let alone = vec![call(2_000, 50)];
    let crowd = trace((0..20).map(|_| (0, alone.clone())).collect());
    let case = case(&crowd, 4_000);
    let on_one = stretches(&case, 1);
    assert_eq!(on_one.len(), 20);
    assert!(on_one.iter().all(|stretch| stretch.unwrap() > 1.1), "{on_one:?}");
    let least = stretches(&case, 20).into_iter().flatten().fold(f64::MAX, f64::min);
    assert!((least - 1.0).abs() < 1e-12, "one of them has a replica for itself: {least}");
}

const FIVE: LoadKind = LoadKind::Developers { developers: 5 };

fn first_starts(setup: &Setup, workload: &Workload) -> Vec<Start> {
    let sessions = workload.sessions.len() as u32;
    Population::new(&setup.load, sessions, setup.seed, setup.warmup).first()
}

#[test]
fn the_window_counts_what_completes_in_it_and_what_it_cuts_off() {
    // Five developers whose sessions last 100 s, with pauses of 50 s: each completes 20 sessions in
    // 3,000 s, wherever in the warm-up the first began.
    let calls = trace(vec![(0, vec![lasting(100)]), (0, vec![lasting(100)])]);
    let setup = Setup {
        load: load(FIVE),
        warmup: Span::from_secs(1_000),
        window: Some(Span::from_secs(3_000)),
        ..setup()
    };
    let run = play(&setup, &calls);
    assert_eq!((run.window.from.secs(), run.window.until.secs()), (1_000.0, 4_000.0));
    let inside = |run: &Run, end: Time| run.window.holds(end);
    let tasks = run.records.tasks.iter().filter(|task| inside(&run, task.ended));
    assert_eq!(tasks.count(), 100);
    let calls_inside = run.records.calls.iter().filter(|call| inside(&run, call.ended));
    assert_eq!(calls_inside.count(), 100);
    // Whoever is 0 s to 100 s into the period of 150 s at 4,000 s is cut off.
    let starts = first_starts(&setup, &Workload::new(&calls, &BTreeMap::new()));
    let into = |start: &Start| (4_000.0 - start.at.secs()) % 150.0;
    let under_way = starts.iter().filter(|start| into(start) < 100.0).count() as u64;
    let cut_off = run.cut_off;
    assert_eq!([cut_off.calls, cut_off.turns, cut_off.tasks], [under_way; 3]);
    assert!((1..5).contains(&under_way), "{under_way} shows both kinds");
    // What had begun before the window is recorded, and not counted.
    assert!(run.records.tasks.len() > 100);
}

#[test]
fn the_first_sessions_begin_within_the_warm_up_on_every_fleet() {
    let sessions: Vec<(u64, Vec<Call>)> =
        (0..7).map(|n| (0, vec![call(500 + 100 * n, 20)])).collect();
    let calls = trace(sessions);
    let begun = |replicas| {
        // After a first session nobody comes back in time.
        let load = Load { pause_median: Span::from_secs(10_000), ..load(FIVE) };
        let setup = Setup {
            replicas,
            load,
            warmup: Span::from_secs(300),
            window: Some(Span::from_secs(600)),
            ..setup()
        };
        let run = play(&setup, &calls);
        let mut begun: Vec<(Time, u32)> =
            run.records.calls.iter().map(|call| (call.dispatched, call.session)).collect();
        begun.sort_unstable();
        begun
    };
    let starts = begun(1);
    assert_eq!(starts.len(), 5);
    assert!(starts.iter().all(|(at, _)| at.secs() < 300.0));
    assert_eq!(starts, begun(3));
    let mut sessions: Vec<u32> = starts.iter().map(|(_, session)| *session).collect();
    sessions.sort_unstable();
    sessions.dedup();
    assert_eq!(sessions.len(), 5, "nobody plays what another plays while there are others");
}

#[test]
fn who_plays_what_does_not_depend_on_how_fast_the_fleet_is() {
    let mut load = load(FIVE);
    load.pause_sigma = 1.0;
    // The pauses and sessions of each developer: once all take turns, once one plays very fast.
    let told = |order: &mut dyn Iterator<Item = u32>| {
        let mut people = Population::new(&load, 7, 3, Span::from_secs(60));
        people.first();
        let mut told = vec![Vec::new(); 5];
        for (step, player) in order.enumerate() {
            let now = Time(step as u64 * 1_000);
            let next = people.after_session(player, now).unwrap();
            told[player as usize].push((next.at - now, next.session, next.pass));
        }
        told
    };
    let turns = told(&mut (0..20).flat_map(|_| 0..5));
    let one_by_one = told(&mut (0..5).rev().flat_map(|player| (0..20).map(move |_| player)));
    assert_eq!(turns, one_by_one);
    assert!(turns[0].iter().any(|pause| pause.0 != turns[0][0].0), "pauses vary");
    // All seven sessions are played before any comes again, as somebody else's.
    let mut first_pass: Vec<u32> =
        turns.iter().flatten().filter(|told| told.2 == 1).map(|told| told.1).collect();
    first_pass.sort_unstable();
    assert_eq!(first_pass, [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn people_begin_sessions_in_office_hours_and_arrive_anew_on_every_working_day() {
    const HOUR: u64 = 3_600;
    let office = Office { hours: Span::from_secs(8 * HOUR), days: 2, ramp: Span::from_secs(HOUR) };
    let setup = Setup {
        load: Load { office: Some(office), ..load(FIVE) },
        window: Some(Span::from_secs(8 * 24 * HOUR)),
        ..setup()
    };
    // Sessions of 1,000 s, pauses of 50 s.
    let run = play(&setup, &trace(vec![(0, vec![lasting(1_000)])]));
    let begun: Vec<Time> = run.records.calls.iter().map(|call| call.dispatched).collect();
    assert!(begun.iter().all(|at| office.is_open(*at)));
    let per_person_and_day = 8 * HOUR / 1_050;
    // The first two days of the first week and the first one of the second.
    for day in [0, 1, 7] {
        let from = Time::ZERO + Span::from_secs(day * 24 * HOUR);
        let of_day = begun.iter().filter(|at| (from..from + office.hours).contains(*at));
        let starts: Vec<Time> = of_day.copied().collect();
        let (least, most) = (5 * (per_person_and_day - 4), 5 * (per_person_and_day + 1));
        assert!((least..=most).contains(&(starts.len() as u64)), "day {day}: {}", starts.len());
        let arrived = starts.iter().filter(|at| **at < from + Span::from_secs(1_050)).count();
        assert!(arrived < 5, "they do not all come at once");
    }
    let on_other_days =
        begun.iter().filter(|at| (2..7).contains(&(at.0 / (24 * HOUR * 1_000_000_000))));
    assert_eq!(on_other_days.count(), 0);
    // What has begun goes on after hours.
    assert!(run.records.calls.iter().any(|call| !office.is_open(call.ended)));
}

#[test]
fn a_session_played_again_is_somebody_elses() {
    // One session: its second call hits its first, but no pass hits the one before.
    let calls = vec![call(400, 1), call(500, 1).after("0").keeping(0, 400)];
    let setup = Setup {
        load: load(LoadKind::Developers { developers: 1 }),
        window: Some(Span::from_secs(600)),
        ..setup()
    };
    let run = play(&setup, &trace(vec![(0, calls)]));
    assert!(run.records.tasks.len() > 5);
    for call in &run.records.calls {
        assert_eq!(call.cached, Tokens(if call.call == 0 { 0 } else { 400 }));
    }
}

#[test]
fn what_few_sessions_share_is_new_in_each_pass_and_what_many_share_is_not() {
    for (sessions, common) in [(4, false), (5, true)] {
        let session = |_| (0, vec![call(400, 1).sharing("shared", 320)]);
        let calls = trace_with(vec![("shared", 320)], (0..sessions).map(session).collect());
        let setup = Setup {
            load: load(LoadKind::Developers { developers: 1 }),
            window: Some(Span::from_secs(900)),
            ..setup()
        };
        let run = play(&setup, &calls);
        // A session every 50 s: three passes and more.
        assert!(run.records.calls.len() > 3 * sessions);
        for (position, call) in run.records.calls.iter().enumerate() {
            let first = if common { position == 0 } else { position % sessions == 0 };
            let cached = Tokens(if first { 0 } else { 320 });
            assert_eq!(call.cached, cached, "call {position} of {sessions} sessions");
        }
    }
}

#[test]
fn sessions_per_hour_has_the_rate_and_the_variation_that_it_says() {
    let calls = trace(vec![(0, vec![lasting(1)])]);
    for cv in [0.2, 1.0] {
        // 12,000 starts in 10 hours, one every 3 s.
        let setup = Setup {
            load: load(LoadKind::SessionsPerHour { rate: 1_200.0, cv }),
            window: Some(Span::from_secs(36_000)),
            ..setup()
        };
        let run = play(&setup, &calls);
        let mut starts: Vec<f64> = run.records.tasks.iter().map(|t| t.started.secs()).collect();
        starts.sort_unstable_by(f64::total_cmp);
        let count = starts.len() as f64;
        assert!((count / 12_000.0 - 1.0).abs() < 0.03, "cv {cv}: {count} starts");
        let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let found = variance.sqrt() / mean;
        assert!((found / cv - 1.0).abs() < 0.05, "cv {cv}: found {found}");
    }
}

#[test]
fn recorded_starts_are_kept() {
    let calls = trace(vec![(0, vec![lasting(1)]), (1_500, vec![lasting(1).gap(250)])]);
    let run = play(&setup(), &calls);
    let starts = [0, 1].map(|session| record(&run, session, 0).dispatched.secs());
    assert_eq!(starts, [0.0, 1.75]);
}
