//! Tells apart the contexts that share one session id, by start, end and prompt length alone.
//!
//! A call continues the lane whose prompt is the longest not above its own, among those that have
//! ended; where there is none it opens a lane. Two cases look like that and are not: equal prompts
//! that overlap are one prompt sent several times, and a main lane that never comes back to its
//! old length was compacted. (Of 167 prompts of recorded main agents that fell to 70 to 100 % of
//! the one before, 161 look like that by the rule below, and 165 were it: they share little more
//! than the tools and the system prompt with it.) A compacted prompt may be longer than that of a
//! subagent or a title call long finished, so a lane much shorter than the call takes it only if
//! the main lane was not.
//! The model is no evidence: people switch models within a conversation.

use super::time::Micros;

/// A lane that has at least this share (in percent) of a call's prompt takes it without question.
const NEAR_PERCENT: u64 = 70;

/// A context that has grown to this share (in percent) of the old length before it passes it has
/// grown back; one that jumps from below is another lane's, resumed.
const GROWN_BACK_PERCENT: u64 = 90;

/// What is known of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Dispatch.
    pub(super) start: Micros,
    /// End of the answer.
    pub(super) end: Micros,
    /// Prompt tokens.
    pub(super) prompt: u64,
    /// Whether the prompt tokens are the server's count; others take no part in the choice.
    pub(super) counted: bool,
}

/// What a call is to its lane. The numbers are positions in the slice of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The first of its lane.
    First,
    /// It continues that call.
    Grown(usize),
    /// The lane starts over with less; that call was the last before.
    Compacted(usize),
    /// The same prompt as that call's, sent at the same time.
    Parallel(usize),
    /// Its tokens were not counted; that call is the lane's last counted one.
    Uncounted(Option<usize>),
}

/// Lanes of the calls of one session id.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Lane of each call. The numbers may have holes.
    pub(super) of: Vec<usize>,
    /// What each call is to its lane.
    pub(super) steps: Vec<Step>,
    /// The main lane.
    pub(super) main: usize,
}

#[derive(Debug)]
struct Lane {
    prompt: u64,
    end: Micros,
    last: Option<usize>,
    counted: usize,
}

impl Lane {
    const UNUSED: Self = Self { prompt: 0, end: Micros::MIN, last: None, counted: 0 };

    fn ended(&self, at: Micros) -> bool {
        self.end <= at
    }
}

/// Splits calls, given in order of start, into lanes.
pub(super) fn split(calls: &[Facts]) -> Lanes {
    let ahead = longest_ahead(calls);
    let mut lanes: Vec<Lane> = Vec::new();
    let mut of = Vec::with_capacity(calls.len());
    let mut steps = Vec::with_capacity(calls.len());
    let mut last_used = 0;
    // Whether the second lane began while the first, then of one call, had not ended.
    let mut beside = false;
    for (index, call) in calls.iter().enumerate() {
        if lanes.is_empty() {
            lanes.push(Lane::UNUSED);
        }
        if !call.counted {
            of.push(last_used);
            steps.push(Step::Uncounted(lanes[last_used].last));
            continue;
        }
        let resumes = |old| comes_back(&calls[index..], old, &ahead[index..]);
        let main = usize::from(beside && lanes[0].counted == 1);
        let (lane, compacted) = choose(&lanes, main, call, resumes);
        let lane = lane.unwrap_or_else(|| {
            beside |= lanes.len() == 1 && !lanes[0].ended(call.start);
            lanes.push(Lane::UNUSED);
            lanes.len() - 1
        });
        let state = &mut lanes[lane];
        steps.push(match state.last {
            None => Step::First,
            Some(last) if compacted => Step::Compacted(last),
            Some(last) => Step::Grown(last),
        });
        let counted = state.counted + 1;
        *state = Lane { prompt: call.prompt, end: call.end, last: Some(index), counted };
        of.push(lane);
        last_used = lane;
    }
    merge_parallel(calls, &lanes, &mut of, &mut steps);
    let main = main_lane(calls, &of);
    Lanes { of, steps, main }
}

/// The lane that a call joins (`None`: a new one), and whether that lane starts over with it.
fn choose(
    lanes: &[Lane],
    main: usize,
    call: &Facts,
    resumes: impl Fn(u64) -> bool,
) -> (Option<usize>, bool) {
    let mut best: Option<usize> = None;
    for (index, lane) in lanes.iter().enumerate() {
        let fits = lane.ended(call.start) && lane.prompt <= call.prompt;
        if fits && best.is_none_or(|best| lane.prompt > lanes[best].prompt) {
            best = Some(index);
        }
    }
    let near = |lane: usize| lanes[lane].prompt * 100 >= call.prompt * NEAR_PERCENT;
    if best.is_some_and(near) {
        return (best, false);
    }
    let twin = |lane: &Lane| !lane.ended(call.start) && lane.prompt == call.prompt;
    let old = lanes[main].prompt;
    let dropped = call.prompt < old;
    if lanes[main].ended(call.start) && dropped && !lanes.iter().any(twin) && !resumes(old) {
        return (Some(main), true);
    }
    (best, false)
}

/// For each call the longest counted prompt of the calls after it.
fn longest_ahead(calls: &[Facts]) -> Vec<u64> {
    let mut ahead = vec![0; calls.len()];
    for index in (1..calls.len()).rev() {
        let own = if calls[index].counted { calls[index].prompt } else { 0 };
        ahead[index - 1] = own.max(ahead[index]);
    }
    ahead
}

/// Whether a context `old` tokens long goes on after the first of `calls`, which is shorter: a
/// later call is as long or longer and has not grown to it, call by call, from the first.
fn comes_back(calls: &[Facts], old: u64, ahead: &[u64]) -> bool {
    if ahead[0] < old {
        return false;
    }
    let mut tip = calls[0];
    for call in calls[1..].iter().filter(|call| call.counted) {
        if call.prompt >= old {
            return tip.prompt * 100 < old * GROWN_BACK_PERCENT;
        }
        if call.start >= tip.end && call.prompt >= tip.prompt {
            tip = *call;
        }
    }
    false
}

/// A lane of one call whose prompt equals that of a call it overlaps is the same prompt sent
/// again, and belongs to that call's lane. Lanes that both go on are two contexts of equal length.
fn merge_parallel(calls: &[Facts], lanes: &[Lane], of: &mut [usize], steps: &mut [Step]) {
    let mut open: Vec<usize> = Vec::new();
    for index in 0..calls.len() {
        let call = calls[index];
        if !call.counted {
            continue;
        }
        open.retain(|&earlier| calls[earlier].end > call.start);
        let single = |at: usize, of: &[usize]| lanes[of[at]].counted == 1 && of[at] != 0;
        let twin = open.iter().copied().find(|&earlier| calls[earlier].prompt == call.prompt);
        open.push(index);
        let Some(earlier) = twin else { continue };
        let (again, original) = if single(index, of) {
            (index, earlier)
        } else if single(earlier, of) && steps[earlier] == Step::First {
            (earlier, index)
        } else {
            continue;
        };
        let (from, into) = (of[again], of[original]);
        of.iter_mut().filter(|lane| **lane == from).for_each(|lane| *lane = into);
        steps[again] = Step::Parallel(original);
    }
}

/// The first lane, unless it is one call made while a longer lane began: a title or a quota check
/// sent beside the first prompt.
fn main_lane(calls: &[Facts], of: &[usize]) -> usize {
    let first_of = |lane: usize| of.iter().position(|&other| other == lane);
    let count = |lane: usize| of.iter().filter(|&&other| other == lane).count();
    let Some(&first) = of.first() else { return 0 };
    let Some(&second) = of.iter().find(|&&lane| lane != first) else { return first };
    let beside = first_of(second).is_some_and(|at| calls[at].start < calls[0].end);
    if beside && count(first) == 1 && count(second) > 1 { second } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls as (start, end, prompt); a prompt of 0 was not counted.
    fn lanes(calls: &[(i64, i64, u64)]) -> Lanes {
        let facts = |&(start, end, prompt): &_| Facts { start, end, prompt, counted: prompt > 0 };
        split(&calls.iter().map(facts).collect::<Vec<_>>())
    }

    #[test]
    fn growth_stays_in_its_lane() {
        let lanes = lanes(&[(0, 1, 100), (2, 3, 150), (4, 5, 150), (6, 7, 400)]);
        assert_eq!(lanes.of, [0, 0, 0, 0]);
        assert_eq!(lanes.steps[0], Step::First);
        assert_eq!(lanes.steps[3], Step::Grown(2));
    }

    #[test]
    fn a_drop_is_a_lane_if_the_old_length_comes_back_and_a_compaction_if_not() {
        let subagent = lanes(&[(0, 1, 1_000), (2, 3, 300), (4, 5, 400), (6, 7, 1_100)]);
        assert_eq!(subagent.of, [0, 1, 1, 0]);
        assert_eq!(subagent.steps[3], Step::Grown(0));
        let compaction = lanes(&[(0, 1, 1_000), (2, 3, 300), (4, 5, 400)]);
        assert_eq!(compaction.of, [0, 0, 0]);
        assert_eq!(compaction.steps[1], Step::Compacted(0));
    }

    #[test]
    fn a_small_drop_is_decided_like_a_large_one() {
        let restart = lanes(&[(0, 1, 1_000), (2, 3, 800), (4, 5, 900), (6, 7, 1_000)]);
        assert_eq!(restart.of, [0, 0, 0, 0]);
        assert_eq!(restart.steps[1], Step::Compacted(0));
        let subagent = lanes(&[(0, 1, 1_000), (2, 3, 800), (4, 5, 850), (6, 7, 1_100)]);
        assert_eq!(subagent.of, [0, 1, 1, 0]);
    }

    #[test]
    fn growing_back_call_by_call_is_no_resumption() {
        let grown: Vec<_> =
            (0..8).map(|n| (10 + 2 * n, 11 + 2 * n, 300 + 100 * n as u64)).collect();
        let calls = [&[(0, 1, 1_000)], &grown[..], &[(30, 31, 1_050)]].concat();
        let lanes = lanes(&calls);
        assert!(lanes.of.iter().all(|&lane| lane == 0), "{:?}", lanes.of);
    }

    #[test]
    fn a_compaction_after_a_short_lane_does_not_continue_that_lane() {
        let lanes = lanes(&[(0, 1, 1_000), (2, 3, 50), (4, 5, 1_100), (6, 7, 300), (8, 9, 350)]);
        assert_eq!(lanes.of, [0, 1, 0, 0, 0]);
        assert_eq!(lanes.steps[3], Step::Compacted(2));
    }

    #[test]
    fn equal_prompts_at_once_are_one_lane_unless_both_go_on() {
        let best_of_three = lanes(&[(0, 5, 100), (1, 5, 100), (2, 5, 100), (6, 7, 200)]);
        assert_eq!(best_of_three.of, [0, 0, 0, 0]);
        assert_eq!(best_of_three.steps[2], Step::Parallel(0));
        assert_eq!(best_of_three.steps[3], Step::Grown(0));
        let subagents = lanes(&[(0, 5, 100), (1, 5, 100), (6, 9, 120), (7, 9, 130)]);
        assert_eq!(subagents.of, [0, 1, 0, 1]);
    }

    #[test]
    fn uncounted_calls_go_to_the_lane_last_used_and_move_nothing() {
        let lanes = lanes(&[(0, 1, 0), (2, 3, 1_000), (4, 5, 0), (6, 7, 1_200)]);
        assert_eq!(lanes.of, [0, 0, 0, 0]);
        assert_eq!(lanes.steps[0], Step::Uncounted(None));
        assert_eq!(lanes.steps[2], Step::Uncounted(Some(1)));
        assert_eq!(lanes.steps[3], Step::Grown(1));
    }

    #[test]
    fn a_title_beside_the_first_prompt_is_not_the_main_lane() {
        let lanes = lanes(&[(0, 4, 50), (1, 6, 900), (7, 8, 1_000)]);
        assert_eq!(lanes.of, [0, 1, 1]);
        assert_eq!(lanes.main, 1);
    }
}
