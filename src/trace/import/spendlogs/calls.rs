//! Turns the calls of a session into a session of the trace, one session at a time.

use std::sync::Arc;

use super::flow::{Flow, FlowStep};
use super::lanes::Step;
use super::lineage::{Finder, Lineage};
use super::names::Names;
use super::plan::{Part, Plan};
use super::report::Evidence;
use super::row::Row;
use super::shared::Shared;
use super::symbols::Symbols;
use super::time::{Micros, span};
use crate::trace::record::{After, AfterEvent, Call, Finish, Session};
use crate::units::{Span, Tokens};

/// A prompt this many times as long as those before and after it was hardly counted right.
const OUTLIER_FACTOR: u64 = 10;

/// What was found while sessions were made.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Sessions.
    pub(super) sessions: u64,
    /// Sessions of one call.
    pub(super) one_call: u64,
    /// Lanes of all sessions.
    pub(super) lanes: u64,
    /// What the lineage rests on.
    pub(super) evidence: Evidence,
    /// Calls whose prompt length was taken from the call before.
    pub(super) assumed_prompts: u64,
    /// Calls whose hit is longer than anything their session had sent or got before.
    pub(super) gaps: u64,
    /// Prompts that stand out by [`OUTLIER_FACTOR`].
    pub(super) outliers: u64,
    /// Turns that began because of a gap.
    pub(super) gap_turns: u64,
    /// Turns that began with a person's message.
    pub(super) said_turns: u64,
    /// Calls that were made while another of their lane was under way.
    pub(super) parallel: u64,
}

/// Makes sessions.
pub(super) struct Builder<'a> {
    /// Texts of the rows.
    pub(super) symbols: &'a Symbols,
    /// Names of the trace.
    pub(super) names: Names,
    /// Contexts that sessions share.
    pub(super) shared: Shared,
    /// Start of the trace.
    pub(super) zero: Micros,
    /// Tokens in a block of the servers' caches; 0 if no hit is known.
    pub(super) block: u64,
    /// A longer gap begins a turn.
    pub(super) turn_gap: Span,
    /// What was found so far.
    pub(super) found: Found,
}

impl Builder<'_> {
    /// The session of these parts, the root first.
    pub(super) fn session(&mut self, parts: &[Part]) -> Session {
        let plan = Plan::new(parts);
        let mut flow = Flow::new(&plan, self.turn_gap);
        let mut finder = Finder::new(&plan, &mut self.shared, &mut self.found.evidence, self.block);
        let mut lineages = Vec::with_capacity(plan.rows.len());
        for number in 0..plan.rows.len() {
            let lineage = finder.find(number);
            // A prompt that repeats an answer was sent after that answer.
            if let Some(base) = lineage.answer_of
                && lineage.kept.0 > plan.rows[base].prompt
            {
                flow.wait_for(number, base);
            }
            lineages.push(lineage);
        }
        let (assumed_prompts, gaps) = (finder.assumed_prompts, finder.gaps);
        let found = &mut self.found;
        found.assumed_prompts += assumed_prompts;
        found.gaps += gaps;
        found.sessions += 1;
        found.one_call += u64::from(plan.rows.len() == 1);
        found.lanes += plan.lanes.len() as u64;
        found.gap_turns += flow.gap_turns;
        found.said_turns += flow.said_turns;
        found.parallel += flow.parallel;
        found.outliers += outliers(&plan);
        let id = self.names.session(&parts[0].rows[0].name);
        let steps = plan.rows.iter().zip(lineages).zip(&flow.steps);
        let calls = steps.map(|((row, lineage), step)| self.call(row, lineage, step)).collect();
        Session { id, calls }
    }

    fn call(&mut self, row: &Row, lineage: Lineage, flow: &FlowStep) -> Call {
        let after = flow.after.iter().map(|&call| After {
            call: u32::try_from(call).unwrap_or(u32::MAX),
            event: AfterEvent::Finished,
        });
        let seen_ttft = row.first_token.map(|at| span(row.start, at));
        let (symbols, names) = (self.symbols, &mut self.names);
        Call {
            at: span(self.zero, row.start),
            after: after.collect(),
            gap: flow.gap,
            cause: flow.cause,
            turn: flow.turn,
            lane: flow.lane,
            model: Arc::clone(symbols.name(row.model)),
            tenant: names.tenant(symbols, row.tenant),
            user: names.user(symbols, row.user),
            profile: Arc::clone(symbols.name(row.profile)),
            base: lineage.base,
            kept_tokens: lineage.kept,
            prompt_tokens: lineage.prompt,
            output_tokens: Tokens(row.output),
            tools: None,
            status: row.status,
            finish: Finish::Stop,
            priority: 0,
            key: names.key(symbols, row.key),
            // Only a streamed answer has a first token before its end.
            stream: row.stream.or(seen_ttft.map(|_| true)),
            max_tokens: None,
            retries: row.retries,
            seen_cached: row.cached.map(Tokens),
            seen_ttft,
            seen_duration: Some(span(row.start, row.end)),
        }
    }
}

/// Prompts far longer than the ones before and after them in their lane.
fn outliers(plan: &Plan<'_>) -> u64 {
    let prompt = |call: usize| plan.rows[call].prompt;
    let mut found = 0;
    for (number, step) in plan.steps.iter().enumerate() {
        let Step::Compacted(peak) = *step else { continue };
        let Step::Grown(before) = plan.steps[peak] else { continue };
        let near = prompt(before).max(prompt(number));
        found += u64::from(prompt(peak) >= near * OUTLIER_FACTOR);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::prompt::{Message, Role};
    use super::super::row::answered;
    use super::super::shared::Prefixes;
    use super::super::spool::Room;
    use super::super::symbols::Id;
    use super::*;
    use crate::trace::record::{Base, Cause};

    /// A call with messages of 100 characters each: `T` tools, `S` system prompt, lower case an
    /// assistant's, digits a tool's result, others a person's. Equal letters are equal messages. A
    /// character is a token.
    fn said(start: Micros, messages: &str, output: u64) -> Row {
        let message = |letter: char| {
            let role = match letter {
                'T' => Role::Tools,
                'S' => Role::System,
                _ if letter.is_lowercase() => Role::Assistant,
                _ if letter.is_ascii_digit() => Role::Tool,
                _ => Role::User,
            };
            Message { hash: u64::from(letter), chars: 100, heads: [0, 0], role }
        };
        let prompt = 100 * messages.len() as u64;
        Row { messages: messages.chars().map(message).collect(), ..answered(start, prompt, output) }
    }

    /// What each call of a session continues, and how much of it.
    type Bases = Vec<(Base, u64)>;

    /// Makes sessions of these calls.
    fn built(sessions: Vec<Vec<Row>>) -> (Vec<Bases>, Found, Vec<Session>) {
        let symbols = Symbols::new();
        let room = Room { folder: std::env::temp_dir(), buffer_bytes: 100 };
        let mut prefixes = Prefixes::new(&room);
        for (number, rows) in sessions.iter().enumerate() {
            prefixes.session(Id::of(&number.to_string()), rows, false).unwrap();
        }
        let mut builder = Builder {
            symbols: &symbols,
            names: Names::new(false),
            shared: prefixes.shared().unwrap(),
            zero: 0,
            block: 0,
            turn_gap: Span::from_secs(60),
            found: Found::default(),
        };
        let parts = |rows| [Part { rows, parent: None }];
        let built: Vec<Session> =
            sessions.into_iter().map(|rows| builder.session(&parts(rows))).collect();
        let bases = |session: &Session| {
            session.calls.iter().map(|call| (call.base.clone(), call.kept_tokens.0)).collect()
        };
        (built.iter().map(bases).collect(), builder.found, built)
    }

    #[test]
    fn messages_tell_what_a_prompt_repeats() {
        let (bases, found, _) = built(vec![vec![
            said(0, "TSA", 50),
            // Prompt and answer; prompt only, as the answer was left out; a shorter beginning.
            said(10, "TSAb1", 30),
            said(20, "TSAb1C", 30),
            said(30, "TSAbXYZ", 30),
            // Nothing at all.
            said(40, "XTSAb1CDEFG", 30),
        ]]);
        let expected = [
            (Base::None, 0),
            (Base::Call(0), 350),
            (Base::Call(1), 500),
            (Base::Call(2), 400),
            (Base::None, 0),
        ];
        assert_eq!(bases[0], expected);
        assert_eq!((found.evidence.messages, found.evidence.first), (4, 1));
    }

    #[test]
    fn tools_and_system_prompt_of_two_sessions_are_a_shared_context() {
        let (bases, found, _) = built(vec![
            vec![said(0, "TSA", 10)],
            vec![said(5, "TSB", 10), said(10, "TSBc1", 10), said(20, "TSC", 10)],
            vec![said(6, "TXB", 10)],
        ]);
        let whole = || (Base::Shared("shared02".into()), 200);
        assert_eq!(bases[0], [whole()]);
        assert_eq!(bases[1], [whole(), (Base::Call(0), 310), whole()]);
        assert_eq!(bases[2], [(Base::Shared("shared01".into()), 100)], "the tools alone");
        assert_eq!(found.evidence.shared_messages, 4);
    }

    #[test]
    fn the_last_message_tells_whether_a_turn_begins() {
        let (_, found, sessions) = built(vec![vec![
            said(0, "SA", 10),
            said(500_000_000, "SAb1", 10),
            said(500_000_010, "SAb1cD", 10),
        ]]);
        let turns: Vec<_> = sessions[0].calls.iter().map(|call| (call.turn, call.cause)).collect();
        assert_eq!(turns, [(0, Cause::User), (0, Cause::Tool), (1, Cause::User)]);
        assert_eq!((found.said_turns, found.gap_turns), (1, 0));
    }
}
