//! Tools that make one trace of another: what holds for any trace, what was worked out on paper,
//! and the command line.

mod command_line;
mod on_paper;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tonnage::trace::canonical::{Compression, Writer, read_from};
use tonnage::trace::lineage::Path;
use tonnage::trace::meta::PartialBlock;
use tonnage::trace::record::{Base, Call, Name, Session, SharedContext, Trace};
use tonnage::trace::summary::{Options, Summary, summarise};
use tonnage::trace::tools::Source;
use tonnage::trace::tools::anonymise::{self, Kind, anonymise};
use tonnage::trace::tools::cut::{Window, cut};
use tonnage::trace::tools::merge::{Part, merge};
use tonnage::trace::tools::sample::{Size, sample};
use tonnage::trace::tools::scale::{Scale, scale};
use tonnage::trace::tools::survey::COMMON_FROM_SESSIONS;
use tonnage::units::{SegmentId, Span, Tokens};

use super::property::any_trace;

/// The calls of a random trace one after the other, of several tenants, profiles and users, each
/// known by its priority, which no tool touches; the talk begins with the tools.
fn told_apart(mut trace: Trace) -> Trace {
    let (tools, talk) = (trace.contexts[0].clone(), &mut trace.contexts[1]);
    (talk.base, talk.kept_tokens) = (Some(tools.name), Tokens(30));
    let mut tag = 0;
    for (number, session) in trace.sessions.iter_mut().enumerate() {
        let start = session.calls[0].at;
        for (position, call) in (0u64..).zip(&mut session.calls) {
            call.at = start + Span::from_millis(4 * position);
            call.tenant = ["web", "lab"][number % 2].into();
            call.profile = ["chat", "", "code"][number % 3].into();
            call.user = format!("u{}", number % 4).into();
            call.key = (number % 2 == 0).then(|| Name::from("key"));
            call.priority = tag;
            tag += 1;
        }
    }
    trace
}

fn tagged_trace() -> impl Strategy<Value = Trace> {
    any_trace().prop_map(told_apart)
}

/// The trace as it comes back from a file: the writer and the reader both check every rule.
fn through_a_file(trace: &Trace) -> Trace {
    let mut bytes = Vec::new();
    let mut writer = Writer::from_write(&mut bytes, Compression::Zstd, "made").unwrap();
    trace.contexts.iter().for_each(|context| writer.context(context).unwrap());
    trace.sessions.iter().for_each(|session| writer.session(session).unwrap());
    writer.finish().unwrap();
    read_from(std::io::Cursor::new(bytes), "made").unwrap()
}

fn assert_keeps_the_rules(trace: &Trace) {
    assert_eq!(&through_a_file(trace), trace);
}

fn calls(trace: &Trace) -> impl Iterator<Item = &Call> {
    trace.sessions.iter().flat_map(|session| &session.calls)
}

fn summary(trace: &Trace, block_size: u64) -> Summary {
    let options = Options {
        block_size,
        partial_block: PartialBlock::Drop,
        lru: vec![3, 20],
        lru_forward: vec![10],
        unnumbered_blocks: BTreeMap::new(),
    };
    summarise(trace.items().unwrap(), &options).unwrap()
}

fn figures(trace: &Trace) -> String {
    serde_json::to_string(&summary(trace, 4)).unwrap()
}

/// Whether a session uses a shared context, itself or through one that continues it.
fn uses(trace: &Trace, session: &Session, name: &Name) -> bool {
    let base = |of: &Name| trace.contexts.iter().find(|c| c.name == *of)?.base.clone();
    let is_it = |of: &Name| of == name || base(of).is_some_and(|base| base == *name);
    session.calls.iter().any(|call| matches!(&call.base, Base::Shared(of) if is_it(of)))
}

/// Sessions that use a shared context.
fn users(trace: &Trace, name: &Name) -> usize {
    trace.sessions.iter().filter(|session| uses(trace, session, name)).count()
}

/// The content of every prompt, by session and tag.
fn prompts(trace: &Trace) -> BTreeMap<(Name, i32), Path> {
    let mut segments = (0..).map(SegmentId);
    let mut contexts: BTreeMap<&str, Path> = BTreeMap::new();
    for context in &trace.contexts {
        let base = context.base.as_ref().map(|base| contexts[&**base].clone()).unwrap_or_default();
        let own = segments.next().unwrap();
        let path = base.continued(context.kept_tokens, own, context.prompt_tokens);
        contexts.insert(&context.name, path);
    }
    let mut prompts = BTreeMap::new();
    for session in &trace.sessions {
        let mut paths: Vec<Path> = Vec::new();
        for call in &session.calls {
            let base = match &call.base {
                Base::None => Path::default(),
                Base::Call(base) => paths[*base as usize].clone(),
                Base::Shared(name) => contexts[&**name].clone(),
            };
            let own = segments.next().unwrap();
            let whole = call.prompt_tokens + call.output_tokens;
            let path = base.continued(call.kept_tokens, own, whole);
            let key = (Name::clone(&session.id), call.priority);
            prompts.insert(key, path.prefix(call.prompt_tokens));
            paths.push(path);
        }
    }
    prompts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_sample_holds_whole_sessions_with_every_stratum_in_proportion(
        trace in tagged_trace(),
        share in 1..=100u32,
        seed in 0..1_000u64,
    ) {
        let share = f64::from(share) / 100.0;
        let mut made = Trace::default();
        let told = sample(&trace, Size::Share(share), seed, &mut made).unwrap();
        assert_keeps_the_rules(&made);
        let whole = |session: &Session| trace.sessions.contains(session);
        prop_assert!(made.sessions.iter().all(whole));
        let total = ((share * trace.sessions.len() as f64).round() as usize).max(1);
        prop_assert_eq!(made.sessions.len(), total);
        for (whole, kept) in told.whole.iter().zip(&told.kept) {
            let due = whole.sessions as f64 * total as f64 / trace.sessions.len() as f64;
            prop_assert!((kept.sessions as f64 - due).abs() < 1.0, "{kept:?}, due {due}");
            let of_stratum = |session: &&Session| {
                let first = &session.calls[0];
                (&first.tenant, &first.profile) == (&whole.tenant, &whole.profile)
            };
            let found = made.sessions.iter().filter(of_stratum).count();
            prop_assert_eq!(found as u64, kept.sessions);
        }
        prop_assert!(made.contexts.iter().all(|context| users(&made, &context.name) > 0));
        let mut again = Trace::default();
        sample(&trace, Size::Share(share), seed, &mut again).unwrap();
        prop_assert_eq!(again, made);
    }

    #[test]
    fn a_clone_shares_with_others_what_is_common_and_nothing_else(
        trace in tagged_trace(),
        by in 1..=400u32,
        seed in 0..1_000u64,
    ) {
        let by = f64::from(by) / 100.0;
        let how = Scale { by, jitter: Span::from_millis(9), seed };
        let mut made = Trace::default();
        let told = scale(&trace, &how, &mut made).unwrap();
        assert_keeps_the_rules(&made);
        let total = ((by * trace.sessions.len() as f64).round() as usize).max(1);
        prop_assert_eq!(made.sessions.len(), total);
        prop_assert_eq!((told.kept + told.clones) as usize, total);
        prop_assert_eq!(told.calls as usize, calls(&made).count());
        let (before, after) = (prompts(&trace), prompts(&made));
        let by_tag: BTreeMap<i32, &Path> = before.iter().map(|((_, t), p)| (*t, p)).collect();
        // Contexts are the first segments of all.
        let is_common: Vec<bool> = trace.contexts.iter()
            .map(|context| users(&trace, &context.name) >= COMMON_FROM_SESSIONS as usize).collect();
        let common_part = |path: &Path| {
            let common = |segment: SegmentId| is_common.get(segment.index()) == Some(&true);
            let runs = path.runs().iter().take_while(|run| common(run.segment));
            runs.last().map_or(Tokens::ZERO, |run| run.end)
        };
        let pass = |id: &Name| id.split_once('~').map(|(_, pass)| pass.to_owned());
        for ((id, tag), path) in &after {
            for ((other_id, other_tag), other) in &after {
                let recorded = by_tag[tag].common_prefix(by_tag[other_tag]);
                let expected = match pass(id) == pass(other_id) {
                    true => recorded,
                    false => recorded.min(common_part(by_tag[tag])),
                };
                prop_assert_eq!(path.common_prefix(other), expected, "{} {}", id, other_id);
            }
        }
        let originals = made.sessions.iter().filter(|session| pass(&session.id).is_none());
        prop_assert!(originals.clone().all(|session| trace.sessions.contains(session)));
        prop_assert_eq!(originals.count() as u64, told.kept);
        for clone in made.sessions.iter().filter(|session| pass(&session.id).is_some()) {
            let user = &clone.calls[0].user;
            prop_assert!(user.ends_with(&pass(&clone.id).unwrap()), "{user}");
        }
    }

    #[test]
    fn a_cut_keeps_what_its_calls_have_in_common(
        trace in tagged_trace(),
        from in 0..60u64,
        length in 1..60u64,
        durations in prop::collection::vec(0..12u64, 12),
    ) {
        let mut trace = trace;
        let all = trace.sessions.iter_mut().flat_map(|session| &mut session.calls);
        for (call, millis) in all.zip(durations.iter().cycle()) {
            // Some are unknown.
            let known = (millis % 3 > 0).then(|| Span::from_millis(*millis));
            call.seen_duration = call.seen_duration.or(known);
        }
        let from = Span::from_millis(from);
        let to = Some(from + Span::from_millis(length));
        let window = Window { from, to, ..Window::default() };
        let mut made = Trace::default();
        let Ok(told) = cut(&trace, &window, &mut made) else {
            prop_assert!(made.sessions.is_empty());
            return Ok(());
        };
        assert_keeps_the_rules(&made);
        let (before, after) = (prompts(&trace), prompts(&made));
        let tagged = calls(&trace).map(|call| (call.priority, call));
        let recorded: BTreeMap<i32, &Call> = tagged.collect();
        for call in calls(&made) {
            let old = recorded[&call.priority];
            prop_assert_eq!(call.prompt_tokens, old.prompt_tokens);
            prop_assert_eq!(call.at, old.at.saturating_sub(window.from));
            prop_assert!(old.at < window.to.unwrap());
        }
        // Nothing that was dispatched in the window is missing.
        let inside = |call: &&Call| window.from <= call.at && call.at < window.to.unwrap();
        let found = calls(&made).filter(|call| inside(&recorded[&call.priority])).count();
        prop_assert_eq!(found, calls(&trace).filter(inside).count());
        prop_assert_eq!(told.calls - told.running, found as u64);
        for (key, path) in &after {
            for (other_key, other) in &after {
                let expected = before[key].common_prefix(&before[other_key]);
                prop_assert_eq!(path.common_prefix(other), expected, "{:?} {:?}", key, other_key);
            }
        }
    }

    #[test]
    fn two_merged_traces_come_apart_again(
        one in tagged_trace(),
        other in tagged_trace(),
        offset in 0..40u64,
    ) {
        let offset = Span::from_millis(offset);
        let part = |source, tenant: &str, offset| Part { source, tenant: tenant.into(), offset };
        let parts = [part(&one as &dyn Source, "a", Span::ZERO), part(&other, "b", offset)];
        let mut made = Trace::default();
        let told = merge(&parts, &mut made).unwrap();
        assert_keeps_the_rules(&made);
        prop_assert_eq!(told[0].sessions as usize, one.sessions.len());
        for (trace, tenant, offset) in [(&one, "a/", Span::ZERO), (&other, "b/", offset)] {
            prop_assert_eq!(&of_tenant(&made, tenant, offset), trace);
        }
        let (whole, first, second) = (summary(&made, 4), summary(&one, 4), summary(&other, 4));
        let blocks = |summary: &Summary| {
            let found = serde_json::to_value(summary).unwrap()["infinite"].clone();
            ["total_blocks", "unique_blocks", "prefix_hit_blocks"]
                .map(|key| found[key].as_u64().unwrap())
        };
        let (first, second) = (blocks(&first), blocks(&second));
        prop_assert_eq!(blocks(&whole), [0, 1, 2].map(|key| first[key] + second[key]));
    }

    #[test]
    fn new_names_change_no_figure(trace in tagged_trace(), unit in 1..20u64) {
        let options = anonymise::Options { keep: vec![Kind::Models], round_start: None };
        let mut made = Trace::default();
        let told = anonymise(&trace, &options, &mut made).unwrap();
        assert_keeps_the_rules(&made);
        prop_assert_eq!(figures(&made), figures(&trace));
        prop_assert!(told.iter().all(|renamed| renamed.old != renamed.new));
        let text = format!("{made:?}");
        for name in ["web", "lab", "chat", "code", "\"u1\"", "\"key\"", "tools\"", "talk"] {
            prop_assert!(!text.contains(name), "{name} is left");
        }
        // Rounded starts keep the order of sessions and the times inside them.
        let round_start = Some(Span::from_millis(unit));
        let options = anonymise::Options { keep: Vec::new(), round_start };
        let mut rounded = Trace::default();
        anonymise(&trace, &options, &mut rounded).unwrap();
        assert_keeps_the_rules(&rounded);
        for (old, new) in trace.sessions.iter().zip(&rounded.sessions) {
            let (old_start, start) = (old.calls[0].at, new.calls[0].at);
            prop_assert_eq!(start.0 % Span::from_millis(unit).0, 0);
            prop_assert!(start <= old_start && old_start.0 < start.0 + Span::from_millis(unit).0);
            let last = |session: &Session| session.calls.last().unwrap().at;
            prop_assert_eq!(last(old) - old_start, last(new) - start);
        }
    }

    #[test]
    fn nothing_asked_for_is_nothing_done(trace in tagged_trace(), seed in 0..9u64) {
        let used = |context: &&SharedContext| users(&trace, &context.name) > 0;
        let contexts = trace.contexts.iter().filter(used).cloned();
        let whole = Trace { contexts: contexts.collect(), sessions: trace.sessions.clone() };
        let mut made = [const { Trace { contexts: Vec::new(), sessions: Vec::new() } }; 4];
        sample(&trace, Size::Share(1.0), seed, &mut made[0]).unwrap();
        let how = Scale { by: 1.0, jitter: Span::from_secs(60), seed };
        scale(&trace, &how, &mut made[1]).unwrap();
        cut(&trace, &Window::default(), &mut made[2]).unwrap();
        let to = Some(Span::from_secs(9));
        let window = Window { whole_sessions: true, to, ..Window::default() };
        cut(&trace, &window, &mut made[3]).unwrap();
        for made in &made {
            prop_assert_eq!(made, &whole);
        }
    }
}

/// What a merged trace holds of one of its parts, under its old names and at its old times.
fn of_tenant(merged: &Trace, prefix: &str, offset: Span) -> Trace {
    let old = |name: &Name| name.strip_prefix(prefix).map(Name::from);
    let mut found = Trace::default();
    for context in &merged.contexts {
        if let Some(name) = old(&context.name) {
            let base = context.base.as_ref().and_then(old);
            found.contexts.push(SharedContext { name, base, ..context.clone() });
        }
    }
    for session in &merged.sessions {
        let Some(id) = old(&session.id) else { continue };
        let mut session = Session { id, calls: session.calls.clone() };
        for call in &mut session.calls {
            call.at -= offset;
            call.tenant = old(&call.tenant).unwrap();
            call.user = old(&call.user).unwrap();
            call.key = call.key.as_ref().and_then(old);
            if let Base::Shared(name) = &call.base {
                call.base = Base::Shared(old(name).unwrap());
            }
        }
        found.sessions.push(session);
    }
    found
}
