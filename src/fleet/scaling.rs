//! Autoscalers at work: they look at the metrics, and pods and replicas come and go.
//!
//! Each replica that is started is a new one with a number of its own: nothing is cached in it, and
//! no session is pinned to it. Behind a gateway it is a deployment of its own, in the model list
//! from when it takes calls until it is told to go. Gateway pods are behind one Kubernetes service,
//! so clients see none of them.

use super::faults::Gone;
use super::observer::Observer;
use super::world::{Event, World};
use crate::autoscale::fleet::{Action, Scaled};
use crate::autoscale::hpa::{HpaState, Member};
use crate::autoscale::keda::{KedaState, Readings};
use crate::autoscale::rate::ScrapedRate;
use crate::config::autoscale::{PodRule, Scaling};
use crate::engine::Engine;
use crate::observe::members::{self, MemberWatch, ScaleEvent, ScalingUse};
use crate::observe::replica::{ReplicaUse, Window};
use crate::units::{ReplicaId, Span, Time, Tokens};

/// All autoscalers of a fleet.
pub(super) struct Scalers {
    pods: Option<PodScaler>,
    replicas: Option<ReplicaScaler>,
    requests: ScrapedRate,
    tokens: ScrapedRate,
    events: Vec<ScaleEvent>,
}

/// What scales the gateway's pods.
struct PodScaler {
    rule: Rule,
    set: Scaled,
    /// By member.
    pods: Vec<Pod>,
    looked: Time,
}

enum Rule {
    Cpu(HpaState),
    Keda(KedaState),
}

/// A member of the pods' set.
#[derive(Clone, Copy)]
enum Pod {
    Starting,
    /// The gateway knows it by this number, and it had used so much core time at the last look.
    Up(u32, Span),
    Gone,
}

/// What scales the replicas.
struct ReplicaScaler {
    keda: KedaState,
    set: Scaled,
    /// Whether each replica holds its machine; members and replicas have the same numbers.
    holds: Vec<bool>,
    held: u32,
    watch: MemberWatch,
}

impl Scalers {
    /// None if nothing is scaled.
    pub(super) fn new(
        scaling: &Scaling,
        pods: Option<u32>,
        replicas: u32,
        window: Window,
    ) -> Option<Box<Self>> {
        let pod_scaler = scaling.pods.as_ref().zip(pods).map(|(settings, pods)| PodScaler {
            rule: match &settings.rule {
                PodRule::Cpu(hpa) => Rule::Cpu(HpaState::new(*hpa)),
                PodRule::Keda(keda) => Rule::Keda(KedaState::new(keda.clone())),
            },
            set: Scaled::new(settings.lifecycle, pods),
            pods: (0..pods).map(|pod| Pod::Up(pod, Span::ZERO)).collect(),
            looked: Time::ZERO,
        });
        let replica_scaler = scaling.replicas.as_ref().map(|settings| ReplicaScaler {
            keda: KedaState::new(settings.keda.clone()),
            set: Scaled::new(settings.lifecycle, replicas),
            holds: vec![true; replicas as usize],
            held: replicas,
            watch: MemberWatch::new(window, replicas),
        });
        let is_any = pod_scaler.is_some() || replica_scaler.is_some();
        let rate = || ScrapedRate::new(scaling.scrape, scaling.rate_window);
        is_any.then(|| {
            Box::new(Self {
                pods: pod_scaler,
                replicas: replica_scaler,
                requests: rate(),
                tokens: rate(),
                events: Vec::new(),
            })
        })
    }

    /// A call has been answered.
    pub(super) fn answered(&mut self, now: Time, tokens: Tokens) {
        self.requests.add(now, 1);
        self.tokens.add(now, tokens.0);
    }

    fn rates(&mut self, now: Time) -> Readings {
        Readings {
            requests_per_second: self.requests.per_second(now),
            tokens_per_second: self.tokens.per_second(now),
            ..Readings::default()
        }
    }

    fn wants(&mut self, at: Time, what: members::Scaled, from: u32, to: u32) {
        if from != to {
            self.events.push(ScaleEvent { at, what, from, to });
        }
    }

    /// The run is over.
    pub(super) fn finish(self, window: Window) -> ScalingUse {
        let mut events = self.events;
        events.retain(|event| event.at < window.until);
        let replicas = self.replicas.map(|replicas| replicas.watch.finish(window));
        ScalingUse { replicas, events }
    }
}

impl PodScaler {
    fn period(&self) -> Span {
        match &self.rule {
            Rule::Cpu(hpa) => hpa.settings().sync,
            Rule::Keda(keda) => {
                let present = self.pods.iter().filter(|pod| !matches!(pod, Pod::Gone)).count();
                keda.period(present as u32)
            }
        }
    }
}

impl<E: Engine, O: Observer> World<'_, E, O> {
    /// The first looks of all autoscalers.
    pub(super) fn start_scalers(&mut self) {
        let Some(scalers) = &self.scalers else { return };
        let pods = scalers.pods.as_ref().map(PodScaler::period);
        let present = self.setup.replicas;
        let replicas = scalers.replicas.as_ref().map(|scaler| scaler.keda.period(present));
        if let Some(period) = pods {
            self.push(Time::ZERO + period, Event::ScalePods);
        }
        if let Some(period) = replicas {
            self.push(Time::ZERO + period, Event::ScaleReplicas);
        }
    }

    /// A call has ended: it counts for rates.
    pub(super) fn count_answer(&mut self, now: Time, tokens: Tokens) {
        if let Some(scalers) = &mut self.scalers {
            scalers.answered(now, tokens);
        }
    }

    pub(super) fn scale_pods(&mut self, now: Time) {
        let (Some(scalers), Some(gate)) = (&mut self.scalers, &self.gate) else { return };
        let rates = scalers.rates(now);
        let Some(scaler) = &mut scalers.pods else { return };
        let (serving, starting) = scaler.set.count(now);
        let present = serving + starting;
        let elapsed = now.saturating_since(scaler.looked).as_f64();
        let cores = elapsed * f64::from(gate.gateway.config().pod_millicores) / 1e3;
        let mut members = Vec::new();
        for pod in &mut scaler.pods {
            match pod {
                Pod::Starting => members.push(Member { share: 0.0, is_ready: false }),
                Pod::Up(number, before) => {
                    let used = gate.gateway.cpu_used(*number, now);
                    let share = (used - std::mem::replace(before, used)).as_f64() / cores;
                    members.push(Member { share, is_ready: true });
                }
                Pod::Gone => {}
            }
        }
        scaler.looked = now;
        let desired = match &mut scaler.rule {
            Rule::Cpu(hpa) => hpa.by_share(now, &members),
            Rule::Keda(keda) => keda.look(now, present, &rates),
        };
        let mut actions = Vec::new();
        scaler.set.scale_to(now, desired, &mut actions);
        scalers.wants(now, members::Scaled::Pods, present, desired);
        for action in actions {
            self.scale_pod(now, action);
        }
        if let Some(gate) = &mut self.gate {
            gate.count_pods(now);
        }
        let period = self.scalers.as_ref().and_then(|scalers| scalers.pods.as_ref());
        if let Some(period) = period.map(PodScaler::period) {
            self.push(now + period, Event::ScalePods);
        }
    }

    fn scale_pod(&mut self, now: Time, action: Action) {
        let (Some(scalers), Some(gate)) = (&mut self.scalers, &mut self.gate) else { return };
        let Some(scaler) = &mut scalers.pods else { return };
        match action {
            Action::Start { member, ready } => {
                scaler.pods.push(Pod::Starting);
                gate.starting += 1;
                if let Some(ready) = ready {
                    self.push(ready, Event::PodReady { member });
                }
            }
            Action::Cancel { member } | Action::Drain { member, .. } => {
                match std::mem::replace(&mut scaler.pods[member as usize], Pod::Gone) {
                    Pod::Starting => gate.starting -= 1,
                    Pod::Up(pod, _) => {
                        if let Action::Drain { kill, .. } = action {
                            self.push(kill, Event::KillPod { pod });
                        }
                        self.tell_gateway(now, |gateway, effects| {
                            gateway.drain_pod(now, pod, effects);
                        });
                    }
                    Pod::Gone => {}
                }
            }
        }
    }

    pub(super) fn pod_ready(&mut self, now: Time, member: u32) {
        let (Some(scalers), Some(gate)) = (&mut self.scalers, &mut self.gate) else { return };
        let Some(scaler) = &mut scalers.pods else { return };
        let pod = &mut scaler.pods[member as usize];
        if !matches!(pod, Pod::Starting) {
            return;
        }
        gate.starting -= 1;
        let mut number = 0;
        self.tell_gateway(now, |gateway, _| number = gateway.add_pod(now));
        if let Some(scaler) = self.scalers.as_mut().and_then(|scalers| scalers.pods.as_mut()) {
            scaler.pods[member as usize] = Pod::Up(number, Span::ZERO);
        }
        if let Some(gate) = &mut self.gate {
            gate.count_pods(now);
        }
    }

    /// A pod that drains has had its time.
    pub(super) fn kill_pod(&mut self, now: Time, pod: u32) {
        self.tell_gateway(now, |gateway, effects| gateway.kill_pod(now, pod, effects));
    }

    pub(super) fn scale_replicas(&mut self, now: Time) {
        let mut readings = match &mut self.scalers {
            Some(scalers) => scalers.rates(now),
            None => return,
        };
        for (number, replica) in (0..).zip(&mut self.replicas) {
            let id = ReplicaId(number);
            if self.faults.is_up(id) {
                let gauges = replica.engine.gauges(now);
                self.agenda.set(id, replica.engine.due());
                readings.requests_waiting += gauges.num_requests_waiting as f64;
                readings.kv_cache_usage += gauges.kv_cache_usage_perc;
            }
        }
        let Some(scalers) = &mut self.scalers else { return };
        let Some(scaler) = &mut scalers.replicas else { return };
        let (serving, starting) = scaler.set.count(now);
        let present = serving + starting;
        let desired = scaler.keda.look(now, present, &readings);
        let mut actions = Vec::new();
        scaler.set.scale_to(now, desired, &mut actions);
        let period = scaler.keda.period(desired);
        scalers.wants(now, members::Scaled::Replicas, present, desired);
        for action in actions {
            match action {
                Action::Start { ready, .. } => self.new_replica(ready),
                Action::Cancel { member } => self.give_up_replica(now, ReplicaId(member)),
                Action::Drain { member, kill } => self.retire(now, ReplicaId(member), kill),
            }
        }
        self.count_replicas(now);
        self.push(now + period, Event::ScaleReplicas);
    }

    /// One more replica, which loads its model.
    fn new_replica(&mut self, ready: Option<Time>) {
        let id = ReplicaId::from_index(self.replicas.len());
        let blocks = super::world::usable_blocks(&self.setup);
        let mut usage = ReplicaUse::new(self.live.window, blocks)
            .kept_over_time(self.observer.wants_use_over_time());
        usage.absent(Time::ZERO);
        self.add_replica(usage);
        if let Some(scaler) = self.scalers.as_mut().and_then(|scalers| scalers.replicas.as_mut()) {
            scaler.holds.push(true);
            scaler.held += 1;
        }
        self.faults.grow();
        self.router.grow(&self.setup.routing);
        self.agenda.grow(id.0 + 1);
        if let Some(ready) = ready {
            self.start_replica(ready, id);
        }
    }

    /// A replica has ended for good, or will never have begun.
    pub(super) fn replica_gone(&mut self, now: Time, replica: ReplicaId) {
        let scaler = self.scalers.as_mut().and_then(|scalers| scalers.replicas.as_mut());
        let Some(scaler) = scaler else { return };
        // One that has failed by itself is made good by the next look.
        scaler.set.lost(replica.0);
        if std::mem::take(&mut scaler.holds[replica.index()]) {
            scaler.held -= 1;
            self.replicas[replica.index()].usage.absent(now);
        }
        if let Some(gate) = &mut self.gate {
            gate.gateway.unlist(replica);
        }
        self.count_replicas(now);
    }

    /// Replicas have become more or fewer, or take calls from now on.
    pub(super) fn count_replicas(&mut self, now: Time) {
        let scaler = self.scalers.as_mut().and_then(|scalers| scalers.replicas.as_mut());
        let Some(scaler) = scaler else { return };
        scaler.watch.set(now, scaler.held, self.faults.count_up());
    }

    /// A replica is to go: it gets no new calls, and is killed if it takes too long.
    fn retire(&mut self, now: Time, replica: ReplicaId, kill: Time) {
        if let Some(gate) = &mut self.gate {
            gate.gateway.unlist(replica);
        }
        match self.drain_for_good(now, replica) {
            Gone::At(change) => self.push(kill, Event::DrainEnds { replica, change }),
            Gone::Already => self.replica_gone(now, replica),
        }
    }

    fn give_up_replica(&mut self, now: Time, replica: ReplicaId) {
        self.drain_for_good(now, replica);
        self.replica_gone(now, replica);
    }
}
