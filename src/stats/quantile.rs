//! The two definitions of a quantile that are in use, each under its own name.

/// The nearest-rank quantile: the smallest sample that at least a share `p` of all samples does
/// not exceed, `x[ceil(p * n) - 1]`. `None` without samples.
///
/// `p` is a share from 0 to 1; 0 gives the smallest sample. `p * n` is rounded to a whole number
/// where it is one but for the rounding of `p` itself: the 7th percentile of 100 samples is the
/// 7th, although `0.07 * 100.0` is a little more than 7.
///
/// # Panics
/// If `p` is not between 0 and 1.
#[must_use]
pub fn quantile<T: Copy>(sorted: &[T], p: f64) -> Option<T> {
    let last = sorted.len().checked_sub(1)?;
    let rank = ceil_of_share(p, sorted.len() as f64) as usize;
    Some(sorted[rank.saturating_sub(1).min(last)])
}

/// The quantile as the statistics files that come with public traces define it:
/// `x[min(n - 1, floor(p * n))]`. `None` without samples.
///
/// It is one rank higher than [`quantile`] wherever `p * n` is a whole number. The product is
/// taken as the hardware gives it, because those files were computed that way.
///
/// # Panics
/// If `p` is not between 0 and 1.
#[must_use]
pub fn quantile_of_stats_files<T: Copy>(sorted: &[T], p: f64) -> Option<T> {
    assert_share(p);
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[((p * sorted.len() as f64) as usize).min(last)])
}

/// The rank, from 1, of the nearest-rank quantile `p` of `n` samples; there is at least one.
///
/// # Panics
/// If `p` is not between 0 and 1.
#[must_use]
pub fn nearest_rank(p: f64, n: u64) -> u64 {
    (ceil_of_share(p, n as f64) as u64).clamp(1, n.max(1))
}

/// `ceil(p * whole)`, where a product within rounding error of a whole number is that number.
pub(super) fn ceil_of_share(p: f64, whole: f64) -> f64 {
    assert_share(p);
    let product = p * whole;
    let nearest = product.round();
    if (product - nearest).abs() <= 4.0 * f64::EPSILON * whole { nearest } else { product.ceil() }
}

fn assert_share(p: f64) {
    assert!((0.0..=1.0).contains(&p), "a quantile is asked for by a share from 0 to 1, not {p}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank_by_hand() {
        let five = [15, 20, 35, 40, 50];
        for (p, expected) in [(0.0, 15), (0.05, 15), (0.3, 20), (0.4, 20), (0.5, 35), (1.0, 50)] {
            assert_eq!(quantile(&five, p), Some(expected), "p = {p}");
        }
        assert_eq!(quantile(&[7], 0.99), Some(7));
        assert_eq!(quantile::<u64>(&[], 0.5), None);
    }

    #[test]
    fn every_percentile_of_a_hundred_samples_is_that_sample() {
        let hundred: Vec<u32> = (1..=100).collect();
        let thousand: Vec<u32> = (1..=1000).collect();
        for rank in 1..=100_u32 {
            let p = f64::from(rank) / 100.0;
            assert_eq!(quantile(&hundred, p), Some(rank));
            assert_eq!(quantile(&thousand, p), Some(rank * 10));
        }
        assert_eq!(quantile(&thousand, 0.999), Some(999));
        assert_eq!(quantile(&thousand, 0.9991), Some(1000));
    }

    #[test]
    fn the_stats_files_take_the_next_rank_at_whole_products() {
        let ten: Vec<u32> = (1..=10).collect();
        assert_eq!(quantile_of_stats_files(&ten, 0.5), Some(6));
        assert_eq!(quantile(&ten, 0.5), Some(5));
        assert_eq!(quantile_of_stats_files(&ten, 0.95), Some(10));
        assert_eq!(quantile_of_stats_files(&ten, 1.0), Some(10));
        assert_eq!(quantile_of_stats_files(&ten, 0.0), Some(1));
        assert_eq!(quantile_of_stats_files::<u64>(&[], 0.5), None);
    }

    #[test]
    #[should_panic(expected = "share from 0 to 1")]
    fn a_percentage_is_not_a_share() {
        let _ = quantile(&[1, 2, 3], 95.0);
    }
}
