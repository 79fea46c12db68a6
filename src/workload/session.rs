//! One session: turns of a person, the agent's calls in each, what runs beside them.
//!
//! The session is drawn in two steps. The plan (`plan`) says how many turns there are, how many
//! calls each has, which of them have others beside them and which spawn subagents. Then the calls
//! are made one after the other: what each waits for, how long the client takes, which context its
//! prompt continues and by how much it grows.

use super::dist::{happens, open_uniform};
use super::profile::{AtLimit, Key, Profile};
use crate::rng::{Purpose, Stream};
use crate::trace::check::TOKENS_MAX;
use crate::trace::record::{Base, Cause, Name, Session};
use crate::units::{Span, Tokens};

mod calls;
mod plan;
mod prompts;
#[cfg(test)]
mod tests;

use calls::{Calls, Wanted};
use plan::Plan;
use prompts::{Last, Prompt};

/// Nobody is followed longer than this from the start of a session.
const LONGEST: Span = Span::from_secs(366 * 86_400);
/// From so many calls of a session on, subagents make one call each.
const ALL_CALLS_MAX: usize = 1_000_000;

/// The head of a prompt that a session has in common with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The shared context that it is.
    pub name: Name,
    /// Its length.
    pub tokens: Tokens,
}

/// Who plays a session, and from when.
#[derive(Clone, Debug)]
pub struct Who<'a> {
    /// What the session is like.
    pub profile: &'a Profile,
    /// Factor on the calls of a turn.
    pub calls: f64,
    /// Factor on what prompts hold beyond the shared prefix.
    pub context: f64,
    /// Id of the session.
    pub id: Name,
    /// Team.
    pub tenant: Name,
    /// Person.
    pub user: Name,
    /// API key.
    pub key: Name,
    /// What stands in the trace's `profile` column.
    pub label: Name,
    /// Model groups: the usual one and the one that a switch leads to.
    pub models: [Name; 2],
    /// What its prompts begin with, if the profile has it.
    pub prefix: Option<Prefix>,
    /// Start of the session.
    pub start: Span,
}

/// What is true of a session and does not stand in the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its agent got stuck.
    pub is_stuck: bool,
    /// How often it was compacted.
    pub compactions: u64,
    /// Lanes that are single calls beside the main agent's, in ascending order.
    pub beside: Vec<u32>,
}

/// The streams of one session.
struct Draws {
    plan: Stream,
    prompts: Stream,
    outputs: Stream,
    gaps: Stream,
    aside: Stream,
    failures: Stream,
}

impl Draws {
    fn new(seed: u64, entity: u64) -> Self {
        let stream = |purpose| Stream::new(seed, purpose, entity);
        Self {
            plan: stream(Purpose::SessionPlan),
            prompts: stream(Purpose::SessionPrompts),
            outputs: stream(Purpose::SessionOutputs),
            gaps: stream(Purpose::SessionGaps),
            aside: stream(Purpose::SessionAside),
            failures: stream(Purpose::SessionFailures),
        }
    }
}

/// Draws a session; `seed` and `entity` name its streams. `tokens_per_s` and a second of waiting
/// give the times at which its calls stand in the trace.
#[must_use]
pub fn session(who: &Who<'_>, seed: u64, entity: u64, tokens_per_s: f64) -> (Session, Facts) {
    let mut maker = Maker::new(who, Draws::new(seed, entity), tokens_per_s);
    let plan = Plan::draw(who, &mut maker.draws.plan, &mut maker.draws.aside);
    maker.facts.is_stuck = plan.is_stuck;
    maker.run(&plan);
    let session = Session { id: Name::clone(&who.id), calls: maker.calls.in_order() };
    (session, maker.facts)
}

struct Maker<'a> {
    who: &'a Who<'a>,
    draws: Draws,
    calls: Calls<'a>,
    facts: Facts,
    /// Which of the two models the main agent asks for.
    model: usize,
    lanes: u32,
    limit: Option<f64>,
    volatile_at: Option<u64>,
    is_stripped: bool,
}

impl<'a> Maker<'a> {
    fn new(who: &'a Who<'a>, mut draws: Draws, tokens_per_s: f64) -> Self {
        let profile = who.profile;
        let prompts = &mut draws.prompts;
        let limit = profile.dist(Key::Limit).map(|dist| dist.draw(prompts));
        let is_volatile = happens(prompts, profile.number(Key::Volatile));
        let volatile_at = profile.dist(Key::VolatileAt).filter(|_| is_volatile);
        let volatile_at = volatile_at.map(|dist| dist.draw_count(prompts));
        let is_stripped = happens(prompts, profile.number(Key::Stripped));
        Self {
            who,
            draws,
            calls: Calls::new(who, tokens_per_s),
            facts: Facts::default(),
            model: 0,
            lanes: 0,
            limit,
            volatile_at,
            is_stripped,
        }
    }

    fn run(&mut self, plan: &Plan) {
        let mut last: Option<Last> = None;
        let (mut waits, mut next): (Vec<usize>, Vec<usize>) = Default::default();
        for (turn, planned) in plan.turns.iter().enumerate() {
            let turn = turn as u32;
            if turn > 0 && happens(&mut self.draws.plan, self.who.profile.number(Key::Switch)) {
                self.model = 1 - self.model;
            }
            for step in 0..planned.main {
                let cause = if step == 0 { Cause::User } else { Cause::Tool };
                let Some(prompt) = self.main_prompt(last.as_ref(), cause) else { return };
                let gap = if last.is_some() { self.gap(cause) } else { Span::ZERO };
                let wanted = Wanted { cause, turn, lane: 0, model: self.model, gap };
                let (call, done) = self.call(&wanted, &waits, &prompt, false);
                if self.calls.elapsed() > LONGEST {
                    return;
                }
                next.clear();
                next.push(call);
                for _ in 0..planned.beside_at(step) {
                    next.push(self.beside(&wanted, &waits, &prompt));
                }
                for _ in 0..planned.spawned_at(step) {
                    next.push(self.subagent(turn, call));
                }
                std::mem::swap(&mut waits, &mut next);
                last = Some(done);
            }
        }
    }

    /// The main agent's next prompt; `None` where the session ends at the limit.
    fn main_prompt(&mut self, last: Option<&Last>, cause: Cause) -> Option<Prompt> {
        let Some(last) = last else { return Some(self.first_prompt()) };
        let profile = self.who.profile;
        let prompts = &mut self.draws.prompts;
        if happens(prompts, profile.number(Key::Replaced))
            && let Some(dist) = profile.dist(Key::ReplacedTokens)
        {
            let tokens = dist.draw(&mut self.draws.prompts);
            return Some(self.afresh(self.scaled(tokens)));
        }
        let key = if cause == Cause::User { Key::GrowthUser } else { Key::GrowthTool };
        let growth = profile.dist(key).map_or(1.0, |dist| {
            let follows = profile.number(Key::GrowthFollows);
            dist.draw_following(prompts, last.output_share, follows)
        });
        let prompt = last.grown(growth * self.who.context, self.is_stripped);
        if self.limit.is_none_or(|limit| prompt.tokens as f64 <= limit) {
            // No trace holds a longer prompt: such a session ends, whatever its profile says.
            return (prompt.tokens < TOKENS_MAX.0).then(|| self.with_volatile(prompt));
        }
        match (profile.at_limit, profile.dist(Key::Compacted)) {
            (AtLimit::Compact, Some(dist)) => {
                self.facts.compactions += 1;
                let tokens = dist.draw(&mut self.draws.prompts);
                let tokens = self.scaled(tokens).min(last.tokens as f64);
                Some(self.afresh(tokens))
            }
            _ => None,
        }
    }

    fn first_prompt(&mut self) -> Prompt {
        let profile = self.who.profile;
        let prompts = &mut self.draws.prompts;
        let resumes = happens(prompts, profile.number(Key::Resumed));
        let resumed = profile.dist(Key::ResumedFirst).filter(|_| resumes);
        let first = resumed.or(profile.dist(Key::First));
        let tokens = first.map_or(1.0, |dist| dist.draw(prompts));
        let tokens = self.scaled(tokens);
        // Who comes with a longer conversation than the limit has a model with more room.
        self.limit = self.limit.map(|limit| if tokens > limit { 2.0 * tokens } else { limit });
        self.afresh(tokens)
    }

    /// A whole prompt with the part beyond the shared prefix made longer or shorter.
    fn scaled(&self, tokens: f64) -> f64 {
        let prefix = self.prefix_tokens() as f64;
        prefix + (tokens - prefix).max(1.0) * self.who.context
    }

    fn prefix_tokens(&self) -> u64 {
        self.who.prefix.as_ref().map_or(0, |prefix| prefix.tokens.0)
    }

    /// A prompt that begins with the shared prefix and is new behind it.
    fn afresh(&self, tokens: f64) -> Prompt {
        let kept = self.prefix_tokens();
        self.with_volatile(Prompt::shared(self.who.prefix.as_ref(), kept, tokens))
    }

    fn with_volatile(&self, mut prompt: Prompt) -> Prompt {
        if let Some(at) = self.volatile_at {
            prompt.kept = prompt.kept.min(at);
        }
        prompt
    }

    fn gap(&mut self, cause: Cause) -> Span {
        let gaps = &mut self.draws.gaps;
        match cause {
            Cause::User => {
                let dist = self.who.profile.dist(Key::GapUser);
                seconds(dist.map_or(0.0, |dist| dist.draw(gaps)))
            }
            _ => tool_gap(self.who.profile, gaps),
        }
    }

    /// Makes a call; what later prompts need to know of it comes along.
    fn call(
        &mut self,
        wanted: &Wanted,
        waits: &[usize],
        prompt: &Prompt,
        is_aside: bool,
    ) -> (usize, Last) {
        let stream = if is_aside { &mut self.draws.aside } else { &mut self.draws.outputs };
        let output_share = open_uniform(stream);
        let output = self.who.profile.dist(Key::Output).map_or(1.0, |d| d.quantile(output_share));
        let output = whole(output);
        let number = self.calls.add(wanted, waits, prompt, output, &mut self.draws.failures);
        (number, Last { number, tokens: prompt.tokens, output, output_share })
    }

    /// A call beside one of the main agent's: the same history, another continuation.
    fn beside(&mut self, main: &Wanted, waits: &[usize], prompt: &Prompt) -> usize {
        self.lanes += 1;
        self.facts.beside.push(self.lanes);
        let growth = self.who.profile.dist(Key::GrowthTool);
        let growth = growth.map_or(1.0, |dist| dist.draw(&mut self.draws.aside));
        let tokens = prompt.kept as f64 + growth * self.who.context;
        let prompt = Prompt::new(prompt.base.clone(), prompt.kept, tokens);
        let wanted = Wanted { cause: Cause::Subagent, lane: self.lanes, ..*main };
        self.call(&wanted, waits, &prompt, true).0
    }

    /// All calls of a subagent; its last one is given back.
    fn subagent(&mut self, turn: u32, spawner: usize) -> usize {
        let profile = self.who.profile;
        self.lanes += 1;
        let lane = self.lanes;
        let prefix = self.prefix_tokens();
        let aside = &mut self.draws.aside;
        let calls = profile.dist(Key::SubagentCalls).map_or(1, |dist| dist.draw_count(aside));
        let kept = match profile.dist(Key::SubagentKept) {
            Some(dist) => dist.draw_count(aside).min(prefix),
            None => prefix,
        };
        let tokens = profile.dist(Key::SubagentFirst).map_or(1.0, |dist| dist.draw(aside));
        let first = Prompt::shared(self.who.prefix.as_ref(), kept, tokens);
        let mut prompt = self.with_volatile(first);
        let mut waits = spawner;
        for step in 0..calls.clamp(1, plan::CALLS_MAX) {
            let (cause, gap) = match step {
                0 => (Cause::Subagent, Span::ZERO),
                _ => (Cause::Tool, tool_gap(profile, &mut self.draws.aside)),
            };
            let wanted = Wanted { cause, turn, lane, model: self.model, gap };
            let (call, last) = self.call(&wanted, &[waits], &prompt, true);
            waits = call;
            let growth = profile.dist(Key::SubagentGrowth).or(profile.dist(Key::GrowthTool));
            let follows = profile.number(Key::GrowthFollows);
            let growth = growth.map_or(1.0, |dist| {
                dist.draw_following(&mut self.draws.aside, last.output_share, follows)
            });
            let grown = last.grown(growth, self.is_stripped);
            // A subagent has no more room than its parent; at the limit it reports back.
            let is_full = self.limit.is_some_and(|limit| grown.tokens as f64 > limit);
            let is_long = self.calls.elapsed() > LONGEST || self.calls.len() >= ALL_CALLS_MAX;
            if is_full || is_long || grown.tokens >= TOKENS_MAX.0 {
                break;
            }
            prompt = self.with_volatile(grown);
        }
        waits
    }
}

/// The slowest of the tools that one answer calls.
fn tool_gap(profile: &Profile, stream: &mut Stream) -> Span {
    let tools = profile.dist(Key::GapBatch).map_or(1, |dist| dist.draw_count(stream));
    let Some(dist) = profile.dist(Key::GapTool) else { return Span::ZERO };
    let slowest = (0..tools.clamp(1, 1_000)).map(|_| dist.draw(stream)).fold(0.0, f64::max);
    seconds(slowest)
}

fn seconds(secs: f64) -> Span {
    Span::from_secs_f64(secs.min(LONGEST.secs()))
}

/// A whole number of tokens, at least one.
fn whole(tokens: f64) -> u64 {
    // A float-to-int cast saturates and sends NaN to zero.
    (tokens.round() as u64).clamp(1, TOKENS_MAX.0)
}

/// What a prompt with nothing to continue continues.
fn shared_base(prefix: Option<&Prefix>) -> Base {
    prefix.map_or(Base::None, |prefix| Base::Shared(Name::clone(&prefix.name)))
}
