//! Least squares with bounds, for a handful of unknowns.

/// Rounds over all unknowns: each brings the rest of the way down by a constant factor.
const ROUNDS: usize = 2_000;

/// The values within `least` and `most` that make the sum of (slopes x values - wanted)^2 least,
/// by going down along one unknown after another. The sum is convex, so this ends at its least.
pub(super) fn least_within(
    equations: &[(Vec<f64>, f64)],
    start: &[f64],
    least: &[f64],
    most: f64,
) -> Vec<f64> {
    let mut values: Vec<f64> =
        start.iter().zip(least).map(|(value, least)| value.clamp(*least, most)).collect();
    for _ in 0..ROUNDS {
        let before = values.clone();
        for at in 0..values.len() {
            let (mut along, mut square) = (0.0, 0.0);
            for (slopes, wanted) in equations {
                let rest: f64 =
                    slopes.iter().zip(&values).map(|(slope, value)| slope * value).sum::<f64>()
                        - slopes[at] * values[at];
                along += slopes[at] * (wanted - rest);
                square += slopes[at] * slopes[at];
            }
            if square > 0.0 {
                values[at] = (along / square).clamp(least[at], most);
            }
        }
        let moved = values.iter().zip(&before).any(|(now, then)| (now - then).abs() > 1e-12);
        if !moved {
            break;
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_solution_is_found_and_bounds_hold() {
        let equations = [(vec![1.0, 2.0], 8.0), (vec![3.0, -1.0], 3.0)];
        let free = least_within(&equations, &[1.0, 1.0], &[0.0, 0.0], 100.0);
        assert!((free[0] - 2.0).abs() < 1e-9 && (free[1] - 3.0).abs() < 1e-9, "{free:?}");
        // With the second unknown held at 4 the first is (8 - 8 + 3 x 7) / 10.
        let bound = least_within(&equations, &[1.0, 1.0], &[0.0, 4.0], 100.0);
        assert!((bound[0] - 2.1).abs() < 1e-9 && bound[1] == 4.0, "{bound:?}");
        assert_eq!(least_within(&equations, &[1.0, 1.0], &[0.0, 0.0], 1.5)[1], 1.5);
    }
}
