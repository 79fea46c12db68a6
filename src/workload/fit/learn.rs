//! From what was read off a trace to a profile.

use super::prefix::Common;
use super::quantity::{Quantity, Share};
use super::readings::Readings;
use super::sample::Sample;
use super::table::{self, FEW};
use crate::trace::record::Name;
use crate::workload::dist::Dist;
use crate::workload::profile::{Key, Kind, Mark, Parameter, Profile};

/// Where among long prompts those lie, on average, that a compaction follows, at least: at a limit
/// they are the longest; half of all prompts are longer than one at which anything happens by
/// chance, and fewer than that where only a much shorter prompt shows.
const AT_A_LIMIT: f64 = 0.75;

/// What a profile is called and where it is from.
#[derive(Clone, Debug)]
pub struct About {
    /// Name of the profile.
    pub name: String,
    /// What it was fitted from.
    pub source: String,
    /// Hour of the week, from Monday 0:00, at which the trace begins; `None` where it does not say.
    pub start_hour: Option<u64>,
}

/// A profile, and what to know before trusting it.
#[derive(Clone, Debug)]
pub struct Learnt {
    /// The profile.
    pub profile: Profile,
    /// What was assumed, or left out.
    pub warnings: Vec<String>,
}

/// Makes a profile of what was read; there is at least one session.
#[must_use]
pub fn learn(readings: &Readings, about: &About) -> Learnt {
    let mut learner = Learner {
        readings,
        profile: Profile::new(about.name.clone()),
        source: about.source.clone(),
        warnings: Vec::new(),
    };
    learner.profile.summary = format!(
        "fitted from {}: {} sessions, {} calls",
        about.source, readings.sessions, readings.calls
    );
    learner.models();
    learner.sessions();
    learner.prompts();
    learner.subagents();
    learner.failures();
    learner.people(about.start_hour);
    learner.left_out();
    Learnt { profile: learner.profile, warnings: learner.warnings }
}

struct Learner<'a> {
    readings: &'a Readings,
    profile: Profile,
    source: String,
    warnings: Vec<String>,
}

impl Learner<'_> {
    fn models(&mut self) {
        let mut models: Vec<(&Name, &u64)> = self.readings.models.iter().collect();
        // The most frequent first; of equals the first by name.
        models.sort_by(|a, b| b.1.cmp(a.1));
        let named = |at: usize| models.get(at).map(|(name, _)| name.to_string());
        if let Some(main) = named(0).filter(|main| !main.is_empty()) {
            self.profile.model = main;
        }
        if models.len() > 2 {
            let text = format!("{} model groups, of which the two most frequent", models.len());
            self.warn(format!("{text} are learnt"));
        }
        if let (Some((share, n)), Some(other)) = (self.share(Share::Switches), named(1)) {
            self.profile.other_model = Some(other);
            self.number(Key::Switch, share, n);
        }
        let tools = self.readings.tools.iter().max_by_key(|(tools, calls)| (**calls, **tools));
        if let Some((tools, calls)) = tools {
            self.number(Key::Catalogue, f64::from(*tools), *calls as f64);
        }
    }

    fn sessions(&mut self) {
        let (single, n) = self.readings.value(Share::SingleTurn).unwrap_or((1.0, 0.0));
        self.number(Key::SingleTurn, single, n);
        if single > 0.0 {
            self.draw(Key::CallsSingle, Quantity::CallsSingle);
        }
        if single < 1.0 {
            self.draw(Key::Turns, Quantity::Turns);
            self.draw(Key::CallsFirst, Quantity::CallsFirst);
            self.draw(Key::CallsLater, Quantity::CallsLater);
            self.draw_or(Key::GapUser, Quantity::GapUser, 0.0);
            self.draw_or(Key::GrowthUser, Quantity::GrowthUser, 1.0);
        }
        let most = |key| self.profile.dist(key).map_or(1.0, |dist| dist.quantile(1.0 - 1e-9));
        if [Key::CallsSingle, Key::CallsFirst, Key::CallsLater].into_iter().any(|k| most(k) >= 2.0)
        {
            self.draw_or(Key::GapTool, Quantity::GapTool, 0.0);
            self.draw_or(Key::GrowthTool, Quantity::GrowthTool, 1.0);
            let beside = self.readings.sample(Quantity::Beside);
            if beside.is_some_and(|beside| beside.cells(1.0, false).max() > 0.0) {
                self.draw(Key::Beside, Quantity::Beside);
            }
        }
        self.draw_or(Key::Output, Quantity::Output, 1.0);
    }

    fn prompts(&mut self) {
        self.prefix(self.readings.prefixes.common());
        self.draw(Key::First, Quantity::First);
        if let Some((correlation, pairs)) = self.readings.couplings.growth_follows()
            && correlation > 0.0
        {
            self.number(Key::GrowthFollows, correlation, pairs as f64);
        }
        if let Some((value, n)) = self.share(Share::Volatile) {
            self.number(Key::Volatile, value, n);
            self.draw(Key::VolatileAt, Quantity::VolatileAt);
        }
        if let Some((stripped, n)) = self.share(Share::Stripped) {
            self.number(Key::Stripped, stripped, n);
        }
        self.fresh_starts();
    }

    /// Prompts that start anew inside a session: at a limit, or anywhere.
    fn fresh_starts(&mut self) {
        let readings = self.readings;
        let cells = |sample: &Sample| sample.cells(1.0, !readings.long.is_exact());
        let at = cells(&readings.compacted_at);
        let place = at.place_among(&cells(&readings.long));
        let (mut replaced, n) = readings.value(Share::Replaced).unwrap_or_default();
        let of = |quantity| readings.sample(quantity).map(cells).unwrap_or_default();
        let mut tokens = of(Quantity::ReplacedTokens);
        if at.count >= FEW && place < AT_A_LIMIT {
            self.warn(format!(
                "{} long conversations start anew at any length (on average at the {:.0}th \
                 percentile of long prompts): learnt as replaced, without a limit",
                at.count,
                100.0 * place
            ));
            replaced += at.count as f64 / n;
            tokens = tokens.and(&of(Quantity::Compacted));
        } else if let Some(dist) = readings.limits.dist() {
            let n = readings.limits.reached();
            self.set(Key::Limit, dist, n, "sessions that were compacted");
            self.draw(Key::Compacted, Quantity::Compacted);
        }
        if tokens.count > 0 {
            self.number(Key::Replaced, replaced, n);
            self.set(Key::ReplacedTokens, table::dist(&tokens, false), tokens.count, "");
        }
    }

    /// The shared prefix. Few versions are ever drawn, so each gets the mean.
    fn prefix(&mut self, common: Common) {
        let sessions = self.readings.sessions as f64;
        let (outer, whole) = ((common.outer / sessions).round(), (common.whole / sessions).round());
        if whole < 1.0 {
            self.warn("no prefix is shared by five sessions or more".to_owned());
            return;
        }
        if (common.sessions as f64) < 0.95 * sessions {
            let share = 100.0 * common.sessions as f64 / sessions;
            self.warn(format!(
                "{share:.0} % of the sessions have a shared prefix; all get one, as long as it is \
                 on average over all"
            ));
        }
        // Where teams are not told apart, all share it whole.
        let outer = if self.readings.starts.tenants() < 2 { whole } else { outer };
        let n = common.sessions;
        for (key, tokens) in [(Key::Tools, outer), (Key::System, whole - outer)] {
            if tokens >= 1.0 {
                self.set(key, Dist::constant(tokens), n, "sessions");
            }
        }
        self.number(Key::Versions, common.outermost as f64, n as f64);
    }

    fn subagents(&mut self) {
        let Some((share, n)) = self.share(Share::SubagentSessions) else { return };
        self.number(Key::SubagentSessions, share, n);
        self.draw(Key::Spawns, Quantity::Spawns);
        self.draw(Key::SpawnsTogether, Quantity::SpawnsTogether);
        self.draw(Key::SubagentCalls, Quantity::SubagentCalls);
        self.draw(Key::SubagentFirst, Quantity::SubagentFirst);
        let prefix = self.readings.value(Share::Prefix).map_or(0.0, |(prefix, _)| prefix);
        let kept = self.readings.sample(Quantity::SubagentKept);
        let least = kept.map(|kept| kept.cells(1.0, false).min());
        if least.is_some_and(|least| least < 0.99 * prefix) {
            self.draw(Key::SubagentKept, Quantity::SubagentKept);
        }
        self.draw(Key::SubagentGrowth, Quantity::SubagentGrowth);
    }

    fn failures(&mut self) {
        if let Some((share, n)) = self.share(Share::FailedCalls) {
            self.number(Key::FailedCalls, share, n);
            self.draw_or(Key::FailedDuration, Quantity::FailedDuration, 0.0);
            self.draw(Key::RetryGap, Quantity::RetryGap);
        }
    }

    fn people(&mut self, start_hour: Option<u64>) {
        let starts = &self.readings.starts;
        let habits = starts.habits(start_hour.unwrap_or(0));
        self.profile.hours = habits.hours;
        if !habits.hours_are_told {
            self.warn("the hours of work are taken as even: less than a day, or few starts".into());
        } else if start_hour.is_none() {
            self.warn("the trace does not say when it starts: taken as Monday 0:00".into());
        }
        match habits.per_hour {
            Some(rate) => self.number(Key::StartsPerHour, rate, starts.users() as f64),
            None => self.warn("people are not named: one session an hour is assumed".into()),
        }
        if starts.anonymous() > 0 && starts.users() > 0 {
            let text = format!("{} sessions name no person", starts.anonymous());
            self.warn(format!("{text} and do not count for starts per hour"));
        }
        if let Some((cv, pauses)) = habits.burst_cv {
            self.number(Key::BurstCv, cv, pauses as f64);
        }
        if starts.users() > 0 && starts.tenants() > 0 {
            let team = starts.users() as f64 / starts.tenants() as f64;
            self.number(Key::Team, team, starts.tenants() as f64);
        }
    }

    fn left_out(&mut self) {
        let left_out = self.readings.left_out;
        for (n, what) in [
            (left_out.sessions, "sessions without a main agent, left out"),
            (
                left_out.shrunk,
                "prompts that keep most of the one before and do not grow, not learnt",
            ),
            (
                left_out.edited,
                "prompts that change their history behind its middle, learnt as growth, so that \
                 more of them hits a cache than in the trace",
            ),
            (left_out.gave_up, "calls that failed and were not repeated, learnt as calls"),
            (
                left_out.forks,
                "subagents that continue their parent's conversation, learnt as beginning with \
                 the shared prefix",
            ),
        ] {
            if n > 0 {
                self.warn(format!("{what}: {n}"));
            }
        }
    }

    /// A share above 0.
    fn share(&self, share: Share) -> Option<(f64, f64)> {
        self.readings.value(share).filter(|(value, _)| *value > 0.0)
    }

    /// Learns a distribution, if there is any value.
    fn draw(&mut self, key: Key, quantity: Quantity) {
        let Some(sample) = self.readings.sample(quantity) else { return };
        let cells = sample.cells(quantity.steps(), false);
        let dist = table::dist(&cells, quantity.is_count());
        self.set(key, dist, cells.count, "");
    }

    /// The same, and where nothing is known this value.
    fn draw_or(&mut self, key: Key, quantity: Quantity, fallback: f64) {
        if self.readings.sample(quantity).is_some() {
            self.draw(key, quantity);
            return;
        }
        let name = key.spec().name;
        self.warn(format!("`{name}`: the trace has none, {fallback} is assumed"));
        let source = format!("not in {}", self.source);
        let parameter = Parameter { dist: Dist::constant(fallback), mark: Mark::Assumed, source };
        self.profile.set(key, parameter);
    }

    fn set(&mut self, key: Key, dist: Dist, n: u64, of: &str) {
        let is_few = n < FEW;
        let of = if of.is_empty() { String::new() } else { format!(" {of}") };
        let few = if is_few { ", too few to tell" } else { "" };
        let source = format!("fitted from {}, n = {n}{of}{few}", self.source);
        if is_few {
            let values = if n == 1 { "value" } else { "values" };
            self.warn(format!("`{}` rests on {n} {values}", key.spec().name));
        }
        let mark = if is_few { Mark::Assumed } else { Mark::Measured };
        self.profile.set(key, Parameter { dist, mark, source });
    }

    /// Learns a number that rests on `n` cases.
    fn number(&mut self, key: Key, value: f64, n: f64) {
        let value = match key.spec().kind {
            Kind::Number(min, max) => value.clamp(min, max),
            Kind::Draw => value,
        };
        self.profile.set(
            key,
            Parameter {
                dist: Dist::constant(value),
                mark: if n < FEW as f64 { Mark::Assumed } else { Mark::Measured },
                source: format!("fitted from {}, n = {n}", self.source),
            },
        );
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }
}
