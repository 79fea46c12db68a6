//! Which fleets nothing beats: cost against how long tasks take and how fast tokens come.

use super::replicates::Fleet;

/// What a fleet costs and gives, in the mean over the seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// USD an hour; none without a price.
    pub usd_per_hour: Option<f64>,
    /// USD a completed task.
    pub usd_per_task: Option<f64>,
    /// GPUs of the fleet; where it is scaled, of those that it starts with.
    pub gpus: u32,
    /// 90th percentile of a task, in seconds.
    pub task_p90_s: Option<f64>,
    /// 1 / p90(ITL), tok/s.
    pub interactivity_p90: Option<f64>,
}

impl Offer {
    /// What a fleet offers.
    #[must_use]
    pub fn of(fleet: &Fleet) -> Self {
        let cost = fleet.figures().cost.as_ref();
        Self {
            usd_per_hour: cost.map(|cost| cost.usd_per_hour),
            usd_per_task: fleet.mean(|figures| figures.cost.as_ref()?.usd_per_completed_task),
            gpus: fleet.gpus(),
            task_p90_s: fleet.mean(|figures| figures.latency.task.map(|task| task.p90)),
            interactivity_p90: fleet.mean(|figures| figures.interactivity.p90),
        }
    }

    /// Whether this one costs no more, is no slower in either way, and better in one of the three.
    fn beats(&self, other: &Self) -> bool {
        let axes = |offer: &Self| {
            Some([offer.usd_per_hour?, offer.task_p90_s?, -offer.interactivity_p90?])
        };
        let (Some(own), Some(its)) = (axes(self), axes(other)) else { return false };
        own.iter().zip(&its).all(|(own, its)| own <= its) && own != its
    }
}

/// Which of these offers no other beats. An offer without a price or a figure is not on the front.
#[must_use]
pub fn pareto(offers: &[Offer]) -> Vec<bool> {
    let complete = |offer: &Offer| {
        offer.usd_per_hour.and(offer.task_p90_s).and(offer.interactivity_p90).is_some()
    };
    let beaten = |offer: &Offer| offers.iter().any(|other| other.beats(offer));
    offers.iter().map(|offer| complete(offer) && !beaten(offer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(usd: f64, task: f64, rate: f64) -> Offer {
        Offer {
            usd_per_hour: Some(usd),
            usd_per_task: None,
            gpus: 1,
            task_p90_s: Some(task),
            interactivity_p90: Some(rate),
        }
    }

    #[test]
    fn the_front_is_what_nothing_beats_in_all_three() {
        let offers = [
            offer(10.0, 100.0, 50.0),
            offer(10.0, 100.0, 50.0),
            offer(12.0, 90.0, 50.0),
            offer(12.0, 95.0, 50.0),
            offer(14.0, 120.0, 80.0),
            offer(15.0, 120.0, 80.0),
            Offer { usd_per_hour: None, ..offer(0.0, 1.0, 900.0) },
        ];
        assert_eq!(pareto(&offers), [true, true, true, false, true, false, false]);
    }
}
