//! Sessions of random calls, packed and told again.

use super::*;
use crate::rng::{Purpose, Stream};

/// Small numbers mostly, and now and then one that no row has room for.
fn number(dice: &mut Stream, most: u64) -> u64 {
    let bits = dice.uniform_below(u64::from(most.ilog2()) + 1);
    dice.uniform_below(2 << bits).min(most)
}

fn links(dice: &mut Stream, from: u32, until: u32) -> Vec<Link> {
    let (from, until) = (u64::from(from), u64::from(until));
    if from == until {
        return Vec::new();
    }
    let count = number(dice, (until - from).min(40));
    match dice.uniform_below(3) {
        // In a row, as most are.
        0 | 1 => {
            let first = from + dice.uniform_below(until - from - count + 1);
            (first..first + count).map(|call| Link::new(call as u32, false)).collect()
        }
        _ => {
            let mut any = || from + dice.uniform_below(until - from);
            let calls: Vec<u64> = (0..count).map(|_| any()).collect();
            calls.iter().map(|call| Link::new(*call as u32, *call % 3 == 0)).collect()
        }
    }
}

fn draft(dice: &mut Stream, call: u32, before: &[Draft]) -> Draft {
    let (prompt, output) = (number(dice, 2_000_000_000), number(dice, 2_000_000_000));
    let base = match (dice.uniform_below(4), call) {
        (0, _) | (_, 0) => match dice.uniform_below(3) {
            0 => BasePlan::None,
            _ => BasePlan::Context(number(dice, 1 << 30) as u32),
        },
        _ => BasePlan::Call(call - 1 - number(dice, 64).min(u64::from(call) - 1) as u32),
    };
    let mut some = |of: (u32, u32)| match dice.uniform_below(4) {
        0 => 0,
        1 => of.0,
        2 => of.0 + of.1,
        _ => number(dice, 1 << 31) as u32,
    };
    let goes_on = some((prompt as u32, output as u32));
    let kept = match base {
        BasePlan::Call(base) => {
            let of = &before[base as usize].plan;
            some((of.prompt, of.output))
        }
        _ => some((7_000, 800)),
    };
    let class = Class {
        is_main: true,
        tenant: number(dice, 3) as u32,
        profile: number(dice, 7) as u32,
        model: number(dice, 1) as u32,
        priority: number(dice, 9) as i32 - 4,
        place: PLACES[dice.uniform_below(PLACES.len() as u64) as usize],
        finish: [Finish::Stop, Finish::Length][dice.uniform_below(2) as usize],
        failed: dice.uniform_below(5) == 0,
    };
    let is_sub = class.place.is(Place::SUBAGENT_FIRST) || class.place.is(Place::SUBAGENT_LATER);
    let plan = CallPlan {
        gap: Span(number(dice, 1 << 62)),
        kept,
        goes_on,
        prompt: prompt as u32,
        output: output as u32,
        base,
        continued_by: number(dice, 1_000) as u32,
        nobody_goes_beyond: dice.uniform_below(2) == 0,
    };
    let class = Class { is_main: !is_sub, ..class };
    Draft { plan, class, after_until: 0, then_until: 0 }
}

#[test]
fn whatever_is_packed_comes_back() {
    let mut packer = Packer::default();
    for session in 0..300 {
        let mut dice = Stream::new(5, Purpose::SessionPlan, session);
        let calls = number(&mut dice, 200) as u32;
        let (mut drafts, mut after, mut then) = (Vec::new(), Vec::new(), Vec::new());
        for call in 0..calls {
            let mut made = draft(&mut dice, call, &drafts);
            after.extend(links(&mut dice, 0, call));
            then.extend(links(&mut dice, call + 1, calls));
            (made.after_until, made.then_until) = (after.len() as u32, then.len() as u32);
            drafts.push(made);
        }
        let packed = packer.pack(&drafts, &after, &then);
        assert_eq!(packed.len(), calls as usize);
        let (mut after_from, mut then_from) = (0, 0);
        for (call, draft) in (0..).zip(&drafts) {
            let is = format!("call {call} of session {session}");
            assert_eq!(packed.plan(call), draft.plan, "{is}");
            assert_eq!(packed.gap(call), draft.plan.gap, "{is}");
            assert_eq!(packed.output(call), draft.plan.output, "{is}");
            assert_eq!(packed.class(call), draft.class, "{is}");
            let (after_until, then_until) = (draft.after_until as usize, draft.then_until as usize);
            let listed = |links: Links<'_>| {
                let all: Vec<Link> = links.iter().collect();
                assert_eq!(all.len(), links.len(), "{is}");
                all
            };
            assert_eq!(listed(packed.after(call)), after[after_from..after_until], "{is}");
            assert_eq!(listed(packed.then(call)), then[then_from..then_until], "{is}");
            (after_from, then_from) = (after_until, then_until);
        }
    }
}
