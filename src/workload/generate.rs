//! From profiles and people to a trace, session by session in the order of their start.
//!
//! Nothing but the next start of every person is kept, so memory follows the people and not the
//! length of the trace.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::people::{Person, Population, Start, Starts};
use super::profile::{Key, Profile};
use super::session::{self, Facts, Prefix, Who};
use crate::rng::{Purpose, Stream};
use crate::trace::record::{Name, Session, SharedContext};
use crate::units::Tokens;

#[cfg(test)]
mod tests;

/// The most tokens of a tool catalogue, and of a system prompt.
const HEAD_TOKENS_MAX: u64 = 100_000_000;

/// What is to be generated.
#[derive(Clone, Debug)]
pub struct Request {
    /// Profiles with their shares of the people, which add up to 1.
    pub mix: Vec<(Profile, f64)>,
    /// Who starts sessions.
    pub population: Population,
    /// Seed of every stream.
    pub seed: u64,
    /// Hour of the week, from Monday 0:00, at which the trace begins.
    pub start_hour: u64,
    /// Speed at which answers are taken to be generated, for the recorded times, in tokens per
    /// second.
    pub tokens_per_s: f64,
}

/// What comes next in the trace.
#[derive(Clone, Debug)]
pub enum Generated {
    /// A shared context, before its first use, and the profile that it is of.
    Context(SharedContext, usize),
    /// A session.
    Session(Box<Made>),
}

/// A session with what its calls do not tell.
#[derive(Clone, Debug)]
pub struct Made {
    /// The session.
    pub session: Session,
    /// What is true of it.
    pub facts: Facts,
    /// Which profile of the mix.
    pub profile: usize,
    /// Which class of that profile.
    pub class: Option<usize>,
}

/// Makes the trace, item by item.
#[derive(Debug)]
pub struct Generator {
    request: Arc<Request>,
    starts: Starts,
    /// Shared contexts that stand in the trace.
    declared: BTreeSet<Name>,
    waiting: VecDeque<Generated>,
}

impl Generator {
    /// Begins the trace that is asked for.
    #[must_use]
    pub fn new(request: &Request) -> Self {
        Self::owning(Arc::new(request.clone()))
    }

    /// The same where the request must live as long.
    #[must_use]
    pub fn owning(request: Arc<Request>) -> Self {
        let Request { mix, population, seed, start_hour, .. } = &*request;
        Self {
            starts: Starts::new(*population, mix, *seed, *start_hour),
            request,
            declared: BTreeSet::new(),
            waiting: VecDeque::new(),
        }
    }

    fn make(&mut self, start: Start) {
        let request = Arc::clone(&self.request);
        let has_classes = matches!(request.population, Population::Developers { .. });
        let person = Person::new(&request.mix, request.seed, start.person, has_classes);
        let profile = &request.mix[person.profile].0;
        let class = person.class.map(|class| &profile.classes[class]);
        let label = match class {
            Some(class) => format!("{}/{}", profile.name, class.name),
            None => profile.name.clone(),
        };
        let other = profile.other_model.as_deref().unwrap_or(&profile.model);
        let prefix = self.prefix(profile, &person);
        let user = format!("u{:05}", start.person);
        let who = Who {
            profile,
            calls: class.map_or(1.0, |class| class.calls),
            context: class.map_or(1.0, |class| class.context),
            id: match has_classes {
                true => format!("{user}-{:05}", start.number).into(),
                false => format!("s{:07}", start.entity).into(),
            },
            tenant: format!("t{:04}", person.tenant).into(),
            user: user.into(),
            key: format!("k{:05}", start.person).into(),
            label: label.into(),
            models: [profile.model.as_str().into(), other.into()],
            prefix,
            start: start.at,
        };
        let (session, facts) =
            session::session(&who, request.seed, start.entity, request.tokens_per_s);
        let made = Made { session, facts, profile: person.profile, class: person.class };
        self.waiting.push_back(Generated::Session(Box::new(made)));
    }

    /// What the prompts of a person begin with; it is declared if it is new.
    fn prefix(&mut self, profile: &Profile, person: &Person) -> Option<Prefix> {
        let place = (person.profile as u64) << 52 | u64::from(person.version) << 32;
        let draw = |key, entity| {
            let mut stream = Stream::new(self.request.seed, Purpose::Scaffold, entity);
            let tokens = profile.dist(key).map(|dist| dist.draw_count(&mut stream));
            tokens.map(|tokens| tokens.min(HEAD_TOKENS_MAX)).filter(|tokens| *tokens > 0)
        };
        // The tools are drawn once for the version, the system prompt for each tenant.
        let tools = draw(Key::Tools, place | u64::from(u32::MAX));
        let system = draw(Key::System, place | u64::from(person.tenant));
        let version = format!("{}-v{}", profile.name, person.version + 1);
        let mut prefix = None;
        if let Some(tools) = tools {
            prefix = Some(self.declare(version.clone(), None, tools, person.profile));
        }
        if let Some(system) = system {
            let name = format!("{version}-t{:04}", person.tenant);
            prefix = Some(self.declare(name, prefix, system, person.profile));
        }
        prefix
    }

    /// A shared context that continues another by so many tokens.
    fn declare(
        &mut self,
        name: String,
        base: Option<Prefix>,
        tokens: u64,
        profile: usize,
    ) -> Prefix {
        let kept = base.as_ref().map_or(Tokens::ZERO, |base| base.tokens);
        let prefix = Prefix { name: name.into(), tokens: kept + Tokens(tokens) };
        if self.declared.insert(Name::clone(&prefix.name)) {
            let context = SharedContext {
                name: Name::clone(&prefix.name),
                base: base.map(|base| base.name),
                kept_tokens: kept,
                prompt_tokens: prefix.tokens,
            };
            self.waiting.push_back(Generated::Context(context, profile));
        }
        prefix
    }
}

impl Iterator for Generator {
    type Item = Generated;

    fn next(&mut self) -> Option<Generated> {
        if self.waiting.is_empty() {
            let start = self.starts.next()?;
            self.make(start);
        }
        self.waiting.pop_front()
    }
}
