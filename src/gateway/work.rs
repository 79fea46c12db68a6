//! CPU: the event loop of each worker, its counting threads, and the cores of the pod below them.

use super::call::{CallRef, Step};
use super::effect::Effect;
use super::worker::{Job, LoopTask};
use super::{Gateway, Timer};
use crate::config::gateway::CountPlace;
use crate::units::{Span, Time, WorkerId};

impl Gateway {
    /// Puts work of a call on its worker's event loop, behind what is there.
    pub(super) fn on_loop(&mut self, now: Time, worker: WorkerId, task: LoopTask) {
        self.worker(worker).loop_queue.push_back(task);
        self.start_loop(now, worker);
    }

    fn start_loop(&mut self, now: Time, id: WorkerId) {
        let worker = self.worker(id);
        if worker.loop_runs {
            return;
        }
        let Some(task) = worker.loop_queue.pop_front() else { return };
        worker.loop_runs = true;
        self.start_job(now, id, Job::Loop(id, task), task.work);
    }

    /// Counts the tokens of a call in a thread, once one is free.
    pub(super) fn in_thread(&mut self, now: Time, worker: WorkerId, call: CallRef, work: Span) {
        self.worker(worker).count_queue.push_back((call, work));
        self.start_counts(now, worker);
    }

    fn start_counts(&mut self, now: Time, id: WorkerId) {
        let CountPlace::Threads { slots, .. } = self.config.counting.place else { return };
        while self.worker(id).counting < slots {
            let Some((call, work)) = self.worker(id).count_queue.pop_front() else { return };
            self.worker(id).counting += 1;
            self.start_job(now, id, Job::Count(id, call), work);
        }
    }

    fn start_job(&mut self, now: Time, worker: WorkerId, job: Job, work: Span) {
        let index = self.workers[worker.index()].pod;
        self.serials += 1;
        let pod = &mut self.pods[index];
        pod.cores.start(now, self.serials, work);
        pod.jobs.insert(self.serials, (job, now));
        self.set_cpu_timer(index);
    }

    fn set_cpu_timer(&mut self, index: usize) {
        let pod = &mut self.pods[index];
        let old = pod.timer.take();
        pod.timer = pod.cores.next().map(|at| self.timers.set(at, Timer::Cpu(index)));
        if let Some(old) = old {
            self.timers.cancel(old);
        }
    }

    /// Ends the jobs of a pod that are done now.
    pub(super) fn run_cores(&mut self, now: Time, index: usize, effects: &mut Vec<Effect>) {
        let pod = &mut self.pods[index];
        pod.timer = None;
        let mut done = Vec::new();
        while let Some(serial) = pod.cores.finish(now) {
            done.extend(pod.jobs.remove(&serial));
        }
        for (job, started) in done {
            self.job_done(now, job, started, effects);
        }
        self.set_cpu_timer(index);
    }

    fn job_done(&mut self, now: Time, job: Job, started: Time, effects: &mut Vec<Effect>) {
        let took = u128::from((now - started).0);
        match job {
            Job::Loop(id, task) => {
                if task.is_count {
                    self.metrics.counter_busy += took;
                }
                self.worker(id).loop_runs = false;
                self.step(now, task.call, task.then, effects);
                self.start_loop(now, id);
            }
            Job::Count(id, call) => {
                self.metrics.counter_busy += took;
                self.worker(id).counting -= 1;
                self.step(now, call, Step::Limit, effects);
                self.start_counts(now, id);
            }
        }
    }
}
