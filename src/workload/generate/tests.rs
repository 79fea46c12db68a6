use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::trace::canonical::{Compression, Writer};
use crate::units::Span;
use crate::workload::catalogue::{PROFILES, profile};

fn developers(names: &[(&str, f64)], developers: u32, days: u32, seed: u64) -> Request {
    let mix = names.iter().map(|(name, share)| (profile(name).unwrap(), *share));
    Request {
        mix: mix.collect(),
        population: Population::Developers { developers, days },
        seed,
        start_hour: 9,
        tokens_per_s: 60.0,
    }
}

fn sessions(name: &str, sessions: u64, seed: u64) -> Request {
    let population = Population::Sessions { sessions, per_hour: 600.0, users: 7 };
    Request { population, ..developers(&[(name, 1.0)], 1, 1, seed) }
}

/// The trace as it is written, which fails unless it keeps every rule.
fn written(request: &Request) -> String {
    let mut bytes = Vec::new();
    let mut writer = Writer::from_write(&mut bytes, Compression::None, "t").unwrap();
    for item in Generator::new(request) {
        match item {
            Generated::Context(context, _) => writer.context(&context).unwrap(),
            Generated::Session(made) => writer.session(&made.session).unwrap(),
        }
    }
    writer.finish().unwrap();
    String::from_utf8(bytes).unwrap()
}

fn by_id(request: &Request) -> BTreeMap<Name, Session> {
    let sessions = Generator::new(request).filter_map(|item| match item {
        Generated::Session(made) => Some((Name::clone(&made.session.id), made.session)),
        Generated::Context(..) => None,
    });
    sessions.collect()
}

#[test]
fn every_profile_makes_traces_that_keep_the_rules() {
    for (name, _) in PROFILES {
        let text = written(&sessions(name, 40, 5));
        assert!(text.lines().count() > 40, "{name}");
        assert_eq!(text, written(&sessions(name, 40, 5)), "{name}: the same seed, the same bytes");
        assert_ne!(text, written(&sessions(name, 40, 6)), "{name}: another seed, another trace");
    }
}

#[test]
fn another_developer_or_another_day_changes_nothing_of_the_others() {
    let few = by_id(&developers(&[("copilot", 1.0)], 6, 3, 1));
    let more = by_id(&developers(&[("copilot", 1.0)], 7, 3, 1));
    let longer = by_id(&developers(&[("copilot", 1.0)], 6, 4, 1));
    assert!(more.len() > few.len() && longer.len() > few.len());
    for (id, session) in &few {
        assert_eq!(more.get(id), Some(session), "{id}");
        assert_eq!(longer.get(id), Some(session), "{id}");
    }
}

#[test]
fn what_streams_out_is_what_sorting_by_start_would_give() {
    let request = developers(&[("copilot", 0.7), ("chat", 0.3)], 12, 3, 2);
    let starts: Vec<Span> = Generator::new(&request)
        .filter_map(|item| match item {
            Generated::Session(made) => Some(made.session.calls[0].at),
            Generated::Context(..) => None,
        })
        .collect();
    assert!(starts.is_sorted() && starts.len() > 50, "{}", starts.len());
    assert!(starts.iter().all(|at| *at <= Span::from_secs(3 * 86_400)));
    // Each person's sessions alone, put together and sorted, are the same sessions.
    let all = by_id(&request);
    let user = |session: &Session| Name::clone(&session.calls[0].user);
    let users: BTreeMap<Name, usize> = all.values().fold(BTreeMap::new(), |mut users, session| {
        *users.entry(user(session)).or_default() += 1;
        users
    });
    assert_eq!(users.values().sum::<usize>(), starts.len());
    assert!(users.len() > 8, "nearly everybody worked");
}

#[test]
fn shares_of_a_mix_and_of_classes_hold_among_few_people() {
    let request = developers(&[("copilot", 0.7), ("chat", 0.3)], 100, 1, 3);
    let people: Vec<Person> =
        (0..100).map(|number| Person::new(&request.mix, 3, number, true)).collect();
    let copilot: Vec<&Person> = people.iter().filter(|person| person.profile == 0).collect();
    assert!((69..=71).contains(&copilot.len()), "{}", copilot.len());
    let classes = &request.mix[0].0.classes;
    for (index, class) in classes.iter().enumerate() {
        let found = copilot.iter().filter(|person| person.class == Some(index)).count() as f64;
        assert!((found / 70.0 - class.share).abs() < 0.05, "{}: {found}", class.name);
    }
    assert!(people.iter().all(|person| person.profile == 0 || person.class.is_none()));
}

#[test]
fn people_of_a_team_share_their_system_prompt_and_all_share_the_tools() {
    let request = developers(&[("copilot", 1.0)], 40, 2, 4);
    let mut contexts = BTreeMap::new();
    for item in Generator::new(&request) {
        match item {
            Generated::Context(context, _) => {
                contexts.insert(Name::clone(&context.name), context);
            }
            Generated::Session(made) => {
                let first = &made.session.calls[0];
                let crate::trace::record::Base::Shared(name) = &first.base else {
                    panic!("the first prompt continues {:?}", first.base)
                };
                assert!(name.ends_with(&*first.tenant), "{name} of {}", first.tenant);
                assert_eq!(first.kept_tokens, contexts[name].prompt_tokens);
            }
        }
    }
    let roots = contexts.values().filter(|context| context.base.is_none()).count();
    assert_eq!(roots, 3, "one for each version");
    // At most every version in every team of eight.
    assert!(contexts.len() > 8 && contexts.len() <= 3 + 3 * 5, "{}", contexts.len());
}

#[test]
fn people_start_so_many_sessions_in_an_hour_of_work() {
    let mut request = developers(&[("chat", 1.0)], 400, 5, 6);
    request.mix[0].0.hours = crate::workload::profile::Hours::Even;
    let sessions = Generator::new(&request)
        .filter(|item| matches!(item, Generated::Session(_)))
        .count() as f64;
    let expected = 400.0 * 5.0 * 24.0;
    assert!((sessions / expected - 1.0).abs() < 0.03, "{sessions} of {expected}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the shares are, the trace keeps the rules: the writer refuses any other.
    #[test]
    fn every_generated_trace_is_one(
        seed: u64,
        shares in prop::array::uniform6(0.0f64..1.0),
        limit in 900.0f64..20_000.0,
        ends: bool,
    ) {
        use crate::workload::dist::{Dist, Family};
        use crate::workload::profile::{AtLimit, Mark, Parameter};
        let mut request = sessions("agentx", 12, seed);
        let profile = &mut request.mix[0].0;
        let parameter = |dist| Parameter { dist, mark: Mark::Assumed, source: String::new() };
        let number = |value| parameter(Dist::constant(value));
        for (key, share) in [
            Key::Stripped, Key::Volatile, Key::Replaced, Key::SubagentSessions, Key::FailedCalls,
            Key::Switch,
        ].into_iter().zip(shares) {
            profile.set(key, number(if key == Key::FailedCalls { share / 2.0 } else { share }));
        }
        let tokens = |median| Dist::of(Family::LogNormal { median, sigma: 1.0 });
        profile.set(Key::VolatileAt, parameter(tokens(500.0)));
        profile.set(Key::First, parameter(tokens(800.0)));
        profile.set(Key::Limit, parameter(tokens(limit)));
        profile.set(Key::SubagentFirst, parameter(tokens(300.0)));
        profile.set(Key::SpawnsTogether, number(3.0));
        profile.set(Key::FailedDuration, number(1.5));
        profile.set(Key::RetryGap, number(0.0));
        profile.set(Key::GapTool, number(0.0));
        profile.set(Key::Beside, number(0.4));
        profile.at_limit = if ends { AtLimit::End } else { AtLimit::Compact };
        prop_assert!(written(&request).lines().count() > 12);
    }
}
