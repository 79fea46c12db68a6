//! Labels at the ends of lines, moved apart where they would cover each other.

/// Moves heights apart until neighbours are at least `gap` apart, inside `from` to `to` as long as
/// there is room, each as near to where it wants to be as that allows. The order by height stays;
/// equal heights keep their order.
pub(super) fn spread(wanted: &[f64], gap: f64, (from, to): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    // Groups of labels that touch: their first position, and how many there are.
    let mut groups: Vec<Group> = Vec::new();
    for &label in &order {
        let mut group = Group { wanted: vec![wanted[label]], middle: wanted[label] };
        group.settle(gap, from, to);
        while groups.last().is_some_and(|above| above.bottom(gap) + gap > group.top(gap)) {
            let mut above = groups.pop().expect("there is one above");
            above.wanted.append(&mut group.wanted);
            above.settle(gap, from, to);
            group = above;
        }
        groups.push(group);
    }
    let mut places = vec![0.0; wanted.len()];
    let settled = groups.iter().flat_map(|group| {
        (0..group.wanted.len()).map(|position| group.top(gap) + gap * position as f64)
    });
    for (place, &label) in settled.zip(&order) {
        places[label] = place;
    }
    places
}

/// Labels that touch each other.
struct Group {
    wanted: Vec<f64>,
    middle: f64,
}

impl Group {
    fn half(&self, gap: f64) -> f64 {
        gap * (self.wanted.len() - 1) as f64 / 2.0
    }

    fn top(&self, gap: f64) -> f64 {
        self.middle - self.half(gap)
    }

    fn bottom(&self, gap: f64) -> f64 {
        self.middle + self.half(gap)
    }

    /// Centres the group on what its labels want, inside the bounds.
    fn settle(&mut self, gap: f64, from: f64, to: f64) {
        let half = self.half(gap);
        let mean = self.wanted.iter().sum::<f64>() / self.wanted.len() as f64;
        self.middle = mean.min(to - half).max(from + half);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_with_room_stay_and_others_move_apart() {
        assert_eq!(spread(&[10.0, 50.0], 12.0, (0.0, 100.0)), [10.0, 50.0]);
        assert_eq!(spread(&[50.0, 50.0], 12.0, (0.0, 100.0)), [44.0, 56.0]);
        assert_eq!(spread(&[100.0, 98.0, 99.0], 10.0, (0.0, 100.0)), [100.0, 80.0, 90.0]);
        assert_eq!(spread(&[], 10.0, (0.0, 100.0)), Vec::<f64>::new());
    }

    #[test]
    fn a_group_pushes_its_neighbours() {
        let places = spread(&[20.0, 21.0, 30.0, 41.0], 10.0, (0.0, 100.0));
        for pair in places.windows(2) {
            assert!(pair[1] - pair[0] >= 10.0 - 1e-9, "{places:?}");
        }
    }
}
