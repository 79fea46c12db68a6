//! How far one target is met, told exactly although percentiles are not.

use crate::config::pools::Pool;
use crate::diag::{self, Error};
use crate::fleet::observer::About;
use crate::fleet::workload::{Class, Names};
use crate::observe::records::{CallOutcome, CallRecord, Place};
use crate::sizing::bootstrap::{Interval, Kept, Unavailable};
use crate::sizing::slo::{Asks, Filter, Op, Quantity, Segment, Share, Slo, SloSource, Verdict};
use crate::stats::{Samples, nearest_rank};
use crate::trace::record::Name;

/// Samples are kept in billionths of their unit.
const NANO: f64 = 1e9;

/// What is known of a target so far.
#[derive(Clone, Debug)]
pub(super) struct TargetTally {
    slo: Slo,
    /// The number of the name that its filter gives, once it was met; and names looked through.
    number: Option<u32>,
    looked_through: usize,
    samples: Samples,
    /// Samples inside the bound, and the largest of them.
    within: u64,
    most_within: f64,
    /// The least outside.
    least_beyond: f64,
    /// Of a share: the part and the whole.
    part: u64,
    whole: u64,
    /// Everything, by session, if an interval is wanted.
    kept: Option<Kept>,
}

impl TargetTally {
    /// Says which pools there are, by number.
    pub(super) fn know_pools(&mut self, pools: &[Pool]) {
        if let Some(Filter::Pool(name)) = &self.slo.filter {
            let place = pools.iter().position(|pool| pool.name == *name);
            self.number = place.map(|place| place as u32);
        }
    }

    pub(super) fn new(slo: &Slo) -> Self {
        Self {
            slo: slo.clone(),
            number: None,
            looked_through: 0,
            samples: Samples::default(),
            within: 0,
            most_within: 0.0,
            least_beyond: f64::INFINITY,
            part: 0,
            whole: 0,
            kept: None,
        }
    }

    /// Keeps what an interval is made of.
    pub(super) fn keep(&mut self) {
        self.kept = Some(Kept::default());
    }

    /// The interval of the figure, if it was kept for.
    pub(super) fn interval(&self, seed: u64) -> Option<Result<Interval, Unavailable>> {
        self.kept.as_ref().map(|kept| kept.interval(&self.slo, seed))
    }

    /// The quantity whose percentile is asked for, if it is one.
    pub(super) fn percentile_of(&self) -> Option<Quantity> {
        match self.slo.metric.asks() {
            Asks::Percentile(quantity) => Some(quantity),
            _ => None,
        }
    }

    pub(super) fn call(&mut self, call: &CallRecord, class: &Class, names: &Names) {
        let quantity = match self.slo.metric.asks() {
            Asks::Share(share) => {
                if self.passes(call, class, names) {
                    self.count(share, call);
                }
                return;
            }
            Asks::Percentile(quantity) | Asks::InversePercentile(quantity) => quantity,
        };
        if call.outcome != CallOutcome::Completed {
            return;
        }
        let sample = match quantity {
            Quantity::Ttft => call.ttft().secs(),
            Quantity::Queue => call.queue().secs(),
            Quantity::Gateway => call.before_send().secs(),
            Quantity::E2ePerToken => call.e2e().secs() / call.output.as_f64(),
            Quantity::Itl => match call.itl_secs() {
                Some(secs) => secs,
                None => return,
            },
            _ => return,
        };
        if self.passes(call, class, names) {
            self.sample(call.session, sample);
        }
    }

    /// A turn or a task with this much of a quantity. It is its session's first call's tenant's and
    /// profile's.
    pub(super) fn unit(&mut self, session: u32, sample: f64, about: &About<'_>) {
        if about.plan.is_empty() {
            return;
        }
        let class = about.plan.class(0);
        let names = about.names;
        let passes = match &self.slo.filter {
            Some(Filter::Profile(_)) => self.is_named(class.profile, &names.profiles),
            Some(Filter::Tenant(_)) => self.is_named(class.tenant, &names.tenants),
            // The others narrow single calls; the language refuses them elsewhere.
            _ => true,
        };
        if passes {
            self.sample(session, sample);
        }
    }

    fn sample(&mut self, session: u32, sample: f64) {
        if let Some(kept) = &mut self.kept {
            kept.sample(session, sample);
        }
        self.samples.add((sample * NANO).round() as u64);
        let within = match (self.slo.metric.asks(), self.slo.op) {
            (Asks::InversePercentile(_), Op::AtLeast) => sample.recip() >= self.slo.bound,
            (Asks::InversePercentile(_), Op::AtMost) => sample.recip() <= self.slo.bound,
            (_, Op::AtMost) => sample <= self.slo.bound,
            (_, Op::AtLeast) => sample >= self.slo.bound,
        };
        if within {
            self.within += 1;
            self.most_within = self.most_within.max(sample);
        } else {
            self.least_beyond = self.least_beyond.min(sample);
        }
    }

    fn count(&mut self, share: Share, call: &CallRecord) {
        let (part, whole) = match (share, call.outcome) {
            (Share::Hit, CallOutcome::Completed) => (call.cached.0, call.prompt.0),
            (Share::Failed, CallOutcome::RecordedFailure) | (Share::Hit, _) => return,
            (Share::Failed, outcome) => (u64::from(outcome.is_failure()), 1),
        };
        self.part += part;
        self.whole += whole;
        if let Some(kept) = &mut self.kept {
            kept.share(call.session, part, whole);
        }
    }

    fn passes(&mut self, call: &CallRecord, class: &Class, names: &Names) -> bool {
        match &self.slo.filter {
            None => true,
            Some(Filter::PromptBand { from, below }) => {
                call.prompt >= *from && below.is_none_or(|below| call.prompt < below)
            }
            Some(Filter::Profile(_)) => self.is_named(class.profile, &names.profiles),
            Some(Filter::Tenant(_)) => self.is_named(class.tenant, &names.tenants),
            Some(Filter::Model(_)) => self.is_named(class.model, &names.models),
            Some(Filter::Segment(segment)) => call.place.is(place_of(*segment)),
            Some(Filter::Pool(_)) => self.number == Some(call.pool.into()),
        }
    }

    /// Whether a number is that of the name in the filter.
    fn is_named(&mut self, number: u32, names: &[Name]) -> bool {
        let filter = self.slo.filter.as_ref();
        let Some(Filter::Profile(wanted) | Filter::Tenant(wanted) | Filter::Model(wanted)) = filter
        else {
            return true;
        };
        if self.number.is_none() && self.looked_through < names.len() {
            let new = &names[self.looked_through..];
            let place = new.iter().position(|name| **name == **wanted);
            self.number = place.map(|place| (self.looked_through + place) as u32);
            self.looked_through = names.len();
        }
        self.number == Some(number)
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.slo.evaluate(self)
    }
}

impl SloSource for TargetTally {
    /// The percentile as the histogram tells it, put on that side of the bound on which it is: so
    /// many samples are inside.
    fn percentile(&self, _: Quantity, q: f64, _: Option<&Filter>) -> Option<f64> {
        let found = self.samples.quantile(q)? / NANO;
        let rank = nearest_rank(q, self.samples.count());
        Some(match self.within >= rank {
            true => found.min(self.most_within),
            false => found.max(self.least_beyond),
        })
    }

    fn share(&self, _: Share, _: Option<&Filter>) -> Option<f64> {
        (self.whole > 0).then(|| self.part as f64 / self.whole as f64)
    }
}

/// Refuses a target about a name that there is not.
pub(super) fn check(slo: &Slo, names: &Names) -> diag::Result<()> {
    let (kind, name, names) = match &slo.filter {
        Some(Filter::Profile(name)) => ("profile", name, &names.profiles),
        Some(Filter::Tenant(name)) => ("tenant", name, &names.tenants),
        Some(Filter::Model(name)) => ("model", name, &names.models),
        _ => return Ok(()),
    };
    if names.iter().any(|known| **known == **name) {
        return Ok(());
    }
    let known = names.iter().map(|name| &**name);
    Err(Error::unknown(kind, name, known).in_field(&slo.text))
}

/// The kind of place that a segment of the target language means.
fn place_of(segment: Segment) -> Place {
    match segment {
        Segment::TurnBoundary => Place::TURN_BOUNDARY,
        Segment::FirstCall => Place::FIRST_OF_TURN,
        Segment::SecondCall => Place::SECOND_OF_TURN,
        Segment::LaterCalls => Place::LATER_IN_TURN,
        Segment::ModelSwitch => Place::MODEL_SWITCH,
        Segment::Subagent => Place::SUBAGENT_FIRST,
    }
}
