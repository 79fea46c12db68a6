//! Pods that come and go, and which worker gets a request.

use super::effect::{Effect, Reason};
use super::metrics::{GatewayCounts, GatewayStatus};
use super::worker::{Pod, PodState, Worker};
use super::{CallRef, Gateway, Phase, Timer};
use crate::config::gateway::Balancer;
use crate::rng::{Purpose, Stream};
use crate::units::{CallId, Span, Time, WorkerId};

impl Gateway {
    /// A pod takes requests from now on, with nothing remembered. Returns its number.
    pub fn add_pod(&mut self, now: Time) -> u32 {
        let pod = self.pods.len();
        let mut workers = Vec::new();
        for _ in 0..self.config.workers {
            let id = WorkerId::from_index(self.workers.len());
            let mut worker = Worker::new(&self.config, id, pod, self.seed);
            if self.database.is_some() && self.config.spend.enabled {
                let poll = worker.spend.next_poll();
                self.timers.set(now + poll, Timer::SpendPoll(id));
                let late = Span::from_secs_f64(5.0 * worker.jitter.uniform_f64());
                self.timers.set(now + self.config.spend.write_interval + late, Timer::SpendJob(id));
            }
            self.workers.push(worker);
            workers.push(id);
        }
        self.pods.push(Pod {
            state: PodState::Up,
            workers,
            cores: super::cores::Cores::new(self.config.pod_millicores, now),
            jobs: Default::default(),
            timer: None,
            started: now,
        });
        pod as u32
    }

    /// A pod gets no more requests. It ends with [`Effect::PodStopped`] once those it has are over
    /// and its spend rows are written.
    pub fn drain_pod(&mut self, now: Time, pod: u32, effects: &mut Vec<Effect>) {
        let index = pod as usize;
        if self.pods.get(index).is_none_or(|pod| pod.state != PodState::Up) {
            return;
        }
        self.pods[index].state = PodState::Draining;
        for worker in self.pods[index].workers.clone() {
            self.flush_spend(now, worker, effects);
        }
        self.stop_if_drained(index, effects);
    }

    /// A pod is killed: its requests fail, its spend rows are lost.
    pub fn kill_pod(&mut self, now: Time, pod: u32, effects: &mut Vec<Effect>) {
        let index = pod as usize;
        if self.pods.get(index).is_none_or(|pod| pod.state == PodState::Stopped) {
            return;
        }
        self.pods[index].state = PodState::Stopped;
        let is_here = |worker: WorkerId| self.workers[worker.index()].pod == index;
        let calls: Vec<CallRef> = (0..self.calls.len())
            .filter_map(|slot| self.numbered(CallId::from_index(slot)))
            .filter(|found| {
                let call = self.calls[found.id.index()].as_ref();
                call.is_some_and(|call| is_here(call.worker))
            })
            .collect();
        // Who waits goes first, so that no slot is given to them.
        for queued in [true, false] {
            for &call in &calls {
                let phase = self.call(call).map(|call| call.phase);
                if phase.is_some_and(|phase| (phase == Phase::Queued) == queued) {
                    self.kill_call(now, call, effects);
                }
            }
        }
        for worker in self.pods[index].workers.clone() {
            let lost = self.worker(worker).spend.abandon();
            if lost.rows > 0 {
                effects.push(Effect::RowsLost { worker, lost });
            }
            if let Some(database) = &mut self.database {
                database.close(worker);
            }
        }
        effects.push(Effect::PodStopped { pod });
    }

    fn kill_call(&mut self, now: Time, call: CallRef, effects: &mut Vec<Effect>) {
        if let Some(Phase::Sent(deployment)) = self.call(call).map(|call| call.phase) {
            self.hang_up(now, call, deployment, super::routing::Sample::None, effects);
        }
        self.metrics.counts.killed += 1;
        self.refuse(now, call, 502, None, Reason::WorkerKilled, effects);
    }

    /// Ends a draining pod that has nothing left to do.
    pub(super) fn stop_if_drained(&mut self, pod: usize, effects: &mut Vec<Effect>) {
        let is_done = |worker: &WorkerId| {
            let worker = &self.workers[worker.index()];
            worker.is_idle() && worker.spend.is_settled()
        };
        let found = &self.pods[pod];
        if found.state != PodState::Draining || !found.workers.iter().all(is_done) {
            return;
        }
        self.pods[pod].state = PodState::Stopped;
        for worker in self.pods[pod].workers.clone() {
            if let Some(database) = &mut self.database {
                database.close(worker);
            }
        }
        effects.push(Effect::PodStopped { pod: pod as u32 });
    }

    pub(super) fn pod_state(&self, worker: WorkerId) -> PodState {
        self.pods[self.workers[worker.index()].pod].state
    }

    /// The worker for a request of this session; `None` if no pod is up.
    pub(super) fn pick_worker(&mut self, session: Option<u64>) -> Option<WorkerId> {
        let up: Vec<WorkerId> = self
            .pods
            .iter()
            .filter(|pod| pod.state == PodState::Up)
            .flat_map(|pod| pod.workers.iter().copied())
            .collect();
        let many = up.len() as u64;
        let index = match (self.config.balancer, session) {
            _ if many == 0 => return None,
            (Balancer::RoundRobin, _) => {
                self.next_worker += 1;
                (self.next_worker - 1) % up.len()
            }
            (Balancer::Session, Some(session)) => {
                let mut hash = Stream::new(self.seed, Purpose::LoadBalancer, session);
                hash.uniform_below(many) as usize
            }
            (Balancer::Random | Balancer::Session, _) => self.balance.uniform_below(many) as usize,
        };
        up.get(index).copied()
    }

    /// How many pods take requests, and how many end.
    #[must_use]
    pub fn pods(&self) -> (u32, u32) {
        let count = |state| self.pods.iter().filter(|pod| pod.state == state).count() as u32;
        (count(PodState::Up), count(PodState::Draining))
    }

    /// Core time that a pod has used up to `now`, for an autoscaler that goes by it.
    ///
    /// # Panics
    /// If there never was such a pod.
    #[must_use]
    pub fn cpu_used(&self, pod: u32, now: Time) -> Span {
        self.pods[pod as usize].cores.used(now)
    }

    /// All that has been counted so far, by its parts too; of its clients nothing.
    #[must_use]
    pub fn counts(&self) -> GatewayCounts {
        let mut counts = self.metrics.counts;
        for worker in &self.workers {
            counts.evicted_pins += worker.memory.cache.evicted_pins();
            counts.spend_rows_written += worker.spend.written.rows;
            counts.spend_nanos_written += worker.spend.written.nano_cost;
            counts.spend_rows_lost += worker.spend.lost.rows;
            counts.spend_nanos_lost += worker.spend.lost.nano_cost;
            counts.redis_stood_in += worker.breaker.stood_in;
            counts.breakers_opened += worker.breaker.opened;
        }
        counts.connections_refused += self.database.as_ref().map_or(0, |database| database.refused);
        counts
    }

    /// The state at `now`.
    #[must_use]
    pub fn status(&self, now: Time) -> GatewayStatus {
        let mut status = GatewayStatus::default();
        for worker in &self.workers {
            status.in_flight += u64::from(worker.slots.in_flight());
            status.queued += worker.slots.queued() as u64;
            status.pins += worker.memory.cache.pins() as u64;
            status.cache_entries += worker.memory.cache.len() as u64;
            status.spend_rows += worker.spend.len() as u64;
            status.spend_bytes += worker.spend.bytes();
            status.spend_bytes_max = status.spend_bytes_max.max(worker.spend.max_bytes);
        }
        for pod in &self.pods {
            if pod.state != PodState::Stopped {
                status.workers += pod.workers.len() as u32;
                let wall = now.saturating_since(pod.started).0 as u128;
                let cores = wall * u128::from(self.config.pod_millicores) / 1_000;
                status.cpu_available += Span(cores as u64);
            }
            status.cpu_used += pod.cores.used(now);
        }
        if let Some(database) = &self.database {
            status.connections = database.open;
            status.connections_max = database.open_max;
        }
        status
    }
}
