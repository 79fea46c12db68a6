//! `latency-based-routing`: the lowest mean of the last ten samples.
//!
//! A sample is the time to the first token of a stream, else the seconds for an output token; an
//! attempt that timed out is one of 1,000 s. A deployment without samples counts as zero and is
//! tried first. Equal means are drawn among (a buffer of zero). Samples of a group are forgotten
//! an hour after the first.

use std::collections::VecDeque;

use super::{Choice, Memory, Sample, any_of};
use crate::gateway::cache::Key;
use crate::rng::Stream;
use crate::units::{DeploymentId, Span, Time};

const HOUR: Span = Span::from_secs(3_600);
const SAMPLES: usize = 10;
const TIMEOUT_S: f64 = 1_000.0;

pub(super) fn choose(
    memory: &mut Memory,
    choice: &Choice<'_>,
    chance: &mut Stream,
) -> Option<DeploymentId> {
    let known = memory.cache.get(choice.now, Key::Latencies(choice.group)).is_some();
    let mean = |id: DeploymentId| {
        let samples = memory.latencies.get(id.index()).filter(|list| known && !list.is_empty());
        samples.map_or(0.0, |list| list.iter().sum::<f64>() / list.len() as f64)
    };
    let means: Vec<(DeploymentId, f64)> =
        choice.healthy.iter().map(|id| (*id, mean(*id))).collect();
    let lowest = means.iter().map(|(_, mean)| *mean).min_by(f64::total_cmp)?;
    let fastest: Vec<DeploymentId> =
        means.into_iter().filter(|(_, mean)| *mean <= lowest).map(|(id, _)| id).collect();
    any_of(&fastest, chance)
}

pub(super) fn learn(
    memory: &mut Memory,
    now: Time,
    group: u32,
    deployment: DeploymentId,
    sample: Sample,
) {
    let seconds = match sample {
        Sample::Seconds(seconds) => seconds,
        Sample::Timeout => TIMEOUT_S,
        Sample::None => return,
    };
    let index = deployment.index();
    if memory.latencies.len() <= index {
        memory.latencies.resize_with(index + 1, VecDeque::new);
    }
    if memory.cache.get(now, Key::Latencies(group)).is_none() {
        memory.cache.renew(now, Key::Latencies(group), 0, HOUR);
        memory.forget_latencies(group);
    }
    let samples = &mut memory.latencies[index];
    if samples.len() == SAMPLES {
        samples.pop_front();
    }
    samples.push_back(seconds);
    memory.note_group(deployment, group);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{deployments, spread};
    use super::super::{Memory, Strategy};
    use super::*;

    fn teach(memory: &mut Memory, deployment: u32, samples: &[f64]) {
        for seconds in samples {
            learn(memory, Time(1), 0, DeploymentId(deployment), Sample::Seconds(*seconds));
        }
    }

    fn chosen(memory: &mut Memory) -> Vec<u32> {
        spread(Strategy::Latency, memory, &deployments(3), 1)
    }

    #[test]
    fn the_unused_is_tried_first_then_the_fastest() {
        let mut memory = Memory::new(None);
        teach(&mut memory, 0, &[0.3]);
        teach(&mut memory, 1, &[0.1]);
        assert_eq!(chosen(&mut memory), [0, 0, 1]);
        teach(&mut memory, 2, &[0.2]);
        assert_eq!(chosen(&mut memory), [0, 1, 0]);
    }

    #[test]
    fn ten_samples_count_and_a_timeout_is_1000_s() {
        let mut memory = Memory::new(None);
        for deployment in 0..3 {
            teach(&mut memory, deployment, &[0.5]);
        }
        learn(&mut memory, Time(1), 0, DeploymentId(0), Sample::Timeout);
        learn(&mut memory, Time(1), 0, DeploymentId(1), Sample::Timeout);
        assert_eq!(chosen(&mut memory), [0, 0, 1]);
        teach(&mut memory, 1, &[0.1; 10]);
        assert_eq!(chosen(&mut memory), [0, 1, 0], "the timeout is out of the last ten");
    }
}
