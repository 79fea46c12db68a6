//! What positions and values mean: scales, ticks, and how values are written.

use super::super::numbers::grouped;

/// How many ticks a value axis has, about.
const TICKS: f64 = 4.0;
/// An axis whose positions lie at most this far apart is linear.
const LINEAR_RATIO: f64 = 8.0;

/// The axis that all panels share.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What lies on it.
    pub label: String,
    /// How positions become places.
    pub scale: Scale,
    /// What is written where, in rising order.
    pub ticks: Vec<(f64, String)>,
    /// First and last position.
    pub range: (f64, f64),
    /// Whether positions are names.
    named: bool,
}

/// How positions become places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are equally far apart.
    Log,
}

/// What a value is, and so how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A part of 1, written as per cent; its axis goes from 0 to 1.
    Share,
    /// A time in seconds.
    Seconds,
    /// A count, a rate or a ratio; its axis starts at 0.
    Number,
    /// Things that there are whole numbers of; ticks stand at such.
    Count,
    /// A value over its bound, written as per cent; its axis goes by ratio and around the bound.
    /// What lies beyond it is drawn at its end.
    OfBound,
}

/// The farthest from its bound that a value is drawn.
pub(super) const OF_BOUND: (f64, f64) = (0.1, 10.0);

impl Scale {
    /// The place of a position between 0 and 1.
    pub(super) fn place(self, x: f64, (from, to): (f64, f64)) -> f64 {
        let (x, from, to) = match self {
            Scale::Linear => (x, from, to),
            Scale::Log => (x.ln(), from.ln(), to.ln()),
        };
        if to > from { (x - from) / (to - from) } else { 0.5 }
    }
}

impl Axis {
    /// An axis for these positions, in rising order: logarithmic if they are positive, span a wide
    /// range and were chosen by ratio rather than by difference. Every position is a tick as long
    /// as there are few.
    #[must_use]
    pub fn of(label: impl Into<String>, positions: impl IntoIterator<Item = f64>) -> Self {
        let mut at: Vec<f64> = positions.into_iter().filter(|x| x.is_finite()).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        let range = (at.first().copied().unwrap_or(0.0), at.last().copied().unwrap_or(1.0));
        let scale = if by_ratio(&at) { Scale::Log } else { Scale::Linear };
        let ticks = match at.len() {
            0 => Vec::new(),
            1..=10 => at,
            _ if scale == Scale::Linear => ticks(range.0, range.1, 8.0),
            _ => decades(range),
        };
        let unit = step_of(&ticks);
        let ticks = ticks.into_iter().map(|x| (x, number(x, unit))).collect();
        Self { label: label.into(), scale, ticks, range, named: false }
    }

    /// A position as the axis names it: by its name where it has names, else as a number.
    pub(super) fn written(&self, x: f64) -> String {
        let named = self.ticks.iter().find(|(at, _)| *at == x).filter(|_| self.named);
        named.map_or_else(|| x.to_string(), |(_, name)| name.clone())
    }

    /// An axis of names, one at every whole number from 0.
    #[must_use]
    pub fn of_names(label: impl Into<String>, names: Vec<String>) -> Self {
        let last = names.len().saturating_sub(1) as f64;
        let ticks = names.into_iter().zip(0u32..).map(|(name, at)| (f64::from(at), name)).collect();
        let range = (0.0, last);
        Self { label: label.into(), scale: Scale::Linear, ticks, range, named: true }
    }

    /// An axis of times since the start, in seconds.
    #[must_use]
    pub fn of_time(label: impl Into<String>, last_s: f64) -> Self {
        let nice = [
            1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0,
            43_200.0, 86_400.0, 172_800.0, 604_800.0,
        ];
        let step = nice.into_iter().find(|step| last_s / step <= 8.0).unwrap_or(last_s / 8.0);
        let count = (last_s / step).floor() as u32;
        let ticks = (0..=count).map(|tick| f64::from(tick) * step);
        let ticks = ticks.map(|x| (x, seconds(x))).collect();
        let range = (0.0, last_s);
        Self { label: label.into(), scale: Scale::Linear, ticks, range, named: false }
    }
}

/// Whether positions rise by ratio rather than by difference.
fn by_ratio(at: &[f64]) -> bool {
    let (Some(&first), Some(&last)) = (at.first(), at.last()) else { return false };
    if at.len() < 3 || first <= 0.0 || last / first < LINEAR_RATIO {
        return false;
    }
    // The middle position lies nearer to the geometric mean than to the arithmetic one.
    let middle = at[at.len() / 2];
    let (geometric, arithmetic) = ((first * last).sqrt(), f64::midpoint(first, last));
    (middle - geometric).abs() < (middle - arithmetic).abs()
}

/// Ticks at 1, 2 and 5 of every power of ten inside a range.
fn decades((from, to): (f64, f64)) -> Vec<f64> {
    let mut list = Vec::new();
    let mut power = 10f64.powf(from.log10().floor());
    while power <= to {
        list.extend([1.0, 2.0, 5.0].map(|digit| digit * power));
        power *= 10.0;
    }
    list.retain(|tick| (from..=to).contains(tick));
    list
}

/// Round values between two bounds, about as many as wanted.
pub(super) fn ticks(from: f64, to: f64, wanted: f64) -> Vec<f64> {
    if to <= from {
        return vec![from];
    }
    let rough = (to - from) / wanted;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|digit| digit * power);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
    let (first, last) = ((from / step).ceil() as i64, (to / step + 1e-9).floor() as i64);
    (first..=last).map(|tick| tick as f64 * step).collect()
}

/// The least distance of neighbours.
fn step_of(ticks: &[f64]) -> f64 {
    ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min)
}

/// The value axis of a panel: where it starts and ends, and its ticks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values {
    pub(super) scale: Scale,
    pub(super) range: (f64, f64),
    pub(super) ticks: Vec<(f64, String)>,
}

impl Values {
    /// An axis that holds these values. Times that span more than two powers of ten are drawn by
    /// ratio, everything else from 0.
    pub(super) fn of(quantity: Quantity, values: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0f64);
        for value in values.filter(|value| value.is_finite()) {
            (least, most) = (least.min(value), most.max(value));
        }
        if quantity == Quantity::OfBound {
            let range = (least.clamp(OF_BOUND.0, 0.8), most.clamp(1.25, OF_BOUND.1));
            let marks = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
            let inside = marks.into_iter().filter(|mark| range.0 <= *mark && *mark <= range.1);
            let ticks = inside.map(|mark| (mark, quantity.written(mark, mark))).collect();
            let range = (range.0 / 1.05, range.1 * 1.05);
            return Self { scale: Scale::Log, range, ticks };
        }
        let wide = least > 0.0 && most / least > 30.0;
        if quantity == Quantity::Seconds && wide {
            let range = (least / 1.15, most * 1.15);
            let ticks = time_marks(range);
            return Self { scale: Scale::Log, range, ticks };
        }
        let most = match quantity {
            Quantity::Share if most > 0.25 => 1.0,
            _ if most > 0.0 => most * 1.06,
            _ => 1.0,
        };
        let at = match quantity {
            Quantity::Seconds => time_ticks(most),
            Quantity::Count => counts(most),
            _ => ticks(0.0, most, TICKS),
        };
        let unit = step_of(&at);
        let ticks = at.into_iter().map(|y| (y, quantity.written(y, unit))).collect();
        Self { scale: Scale::Linear, range: (0.0, most), ticks }
    }
}

impl Quantity {
    /// A value as it stands beside its tick, where ticks are `step` apart.
    fn written(self, value: f64, step: f64) -> String {
        match self {
            Quantity::Share | Quantity::OfBound => {
                format!("{} %", number(value * 100.0, step * 100.0))
            }
            Quantity::Seconds => seconds(value),
            Quantity::Number | Quantity::Count => number(value, step),
        }
    }
}

impl Quantity {
    /// A value in words, to two or three digits.
    pub(super) fn said(self, value: f64) -> String {
        match self {
            Quantity::Share | Quantity::OfBound => format!("{:.0} %", value * 100.0),
            Quantity::Seconds if value >= 60.0 => seconds((value / 6.0).round() * 6.0),
            Quantity::Seconds | Quantity::Number | Quantity::Count => {
                let digits = 10f64.powi(2 - (value.abs().max(1e-9).log10().floor() as i32));
                let rounded = (value * digits).round() / digits;
                match self {
                    Quantity::Seconds => seconds(rounded),
                    _ => number(rounded, 1.0 / digits),
                }
            }
        }
    }
}

/// Ticks of a time axis from 0, at times that people would choose.
fn time_ticks(most: f64) -> Vec<f64> {
    const STEPS: [f64; 22] = [
        1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_200.0, 1_800.0,
        3_600.0, 7_200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0, 604_800.0,
    ];
    let step = STEPS.into_iter().find(|step| most / step <= TICKS);
    match step.filter(|step| *step > 1.0) {
        Some(step) => (0..=(most / step) as u32).map(|tick| f64::from(tick) * step).collect(),
        None => {
            let unit = if most < 1.0 { 1e-3 } else { 1.0 };
            ticks(0.0, most / unit, TICKS).into_iter().map(|tick| tick * unit).collect()
        }
    }
}

/// Ticks at whole numbers from 0.
fn counts(most: f64) -> Vec<f64> {
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0];
    let step = steps.into_iter().find(|step| most / step <= TICKS + 1.0).unwrap_or(most);
    (0..=(most / step) as u32).map(|tick| f64::from(tick) * step).collect()
}

/// Ticks of a time axis by ratio.
fn time_marks(range: (f64, f64)) -> Vec<(f64, String)> {
    let marks = [
        0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1_800.0,
        3_600.0, 10_800.0, 36_000.0, 86_400.0,
    ];
    let inside = marks.into_iter().filter(|mark| range.0 <= *mark && *mark <= range.1);
    inside.map(|mark| (mark, seconds(mark))).collect()
}

/// A time in the unit that people would use.
fn seconds(value: f64) -> String {
    let (value, unit) = match value {
        _ if value == 0.0 => return "0".to_owned(),
        _ if value >= 86_400.0 && value % 86_400.0 == 0.0 => (value / 86_400.0, "d"),
        _ if value >= 3_600.0 => (value / 3_600.0, "h"),
        _ if value >= 60.0 => (value / 60.0, "min"),
        _ if value >= 1.0 => (value, "s"),
        _ => (value * 1e3, "ms"),
    };
    format!("{} {unit}", number(value, 0.1))
}

/// A number with as many decimals as its ticks need to differ.
fn number(value: f64, step: f64) -> String {
    let (value, step, suffix) = match value.abs() {
        large if large >= 1e9 => (value / 1e9, step / 1e9, " G"),
        large if large >= 1e6 => (value / 1e6, step / 1e6, " M"),
        _ => (value, step, ""),
    };
    let shift = |decimals: i32| 10f64.powi(decimals);
    let exact = |&decimals: &i32| {
        let shifted = value * shift(decimals);
        (shifted.round() - shifted).abs() < 1e-6 * shift(decimals).max(1.0)
    };
    let enough = |decimals: &i32| step * shift(*decimals) >= 10.0;
    let decimals = (0..4).find(exact).or_else(|| (0..4).find(enough));
    let decimals = decimals.unwrap_or(4) as usize;
    if decimals == 0 {
        return format!("{}{suffix}", grouped(value.round() as i64));
    }
    format!("{value:.decimals$}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ticks: &[(f64, String)]) -> Vec<&str> {
        ticks.iter().map(|(_, text)| &**text).collect()
    }

    #[test]
    fn positions_by_ratio_get_a_logarithmic_axis_and_each_a_tick() {
        let axis = Axis::of("replicas", [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!((axis.scale, texts(&axis.ticks)), (Scale::Log, vec!["1", "2", "4", "8", "16"]));
        assert_eq!(axis.scale.place(4.0, axis.range), 0.5);
        assert_eq!(Axis::of("replicas", (1..=9).map(f64::from)).scale, Scale::Linear);
        assert_eq!(Axis::of("share", [0.0, 0.1, 0.2]).scale, Scale::Linear);
        let many = Axis::of("sessions", (0..40).map(|n| 10f64.powf(f64::from(n) / 13.0)));
        assert_eq!(texts(&many.ticks)[..5], ["1", "2", "5", "10", "20"]);
    }

    #[test]
    fn values_start_at_zero_and_shares_end_at_one() {
        let share = Values::of(Quantity::Share, [0.4, 0.9].into_iter());
        assert_eq!(share.range, (0.0, 1.0));
        assert_eq!(texts(&share.ticks), ["0 %", "25 %", "50 %", "75 %", "100 %"]);
        let small = Values::of(Quantity::Share, [0.001, 0.02].into_iter());
        assert_eq!(texts(&small.ticks).last(), Some(&"2 %"));
        let time = Values::of(Quantity::Seconds, [100.0, 700.0].into_iter());
        assert_eq!(texts(&time.ticks), ["0", "5 min", "10 min"]);
        let replicas = Values::of(Quantity::Count, [1.0, 8.0].into_iter());
        assert_eq!(texts(&replicas.ticks), ["0", "2", "4", "6", "8"]);
        let hours = Values::of(Quantity::Seconds, [400.0, 5_500.0].into_iter());
        assert_eq!(texts(&hours.ticks), ["0", "30 min", "1 h", "1.5 h"]);
        let wide = Values::of(Quantity::Seconds, [0.5, 70.0].into_iter());
        assert_eq!((wide.scale, texts(&wide.ticks)[0]), (Scale::Log, "1 s"));
        assert_eq!(Values::of(Quantity::Number, std::iter::empty()).range, (0.0, 1.0));
    }

    #[test]
    fn numbers_have_the_decimals_that_tell_them_apart() {
        assert_eq!(number(2.5, 2.5), "2.5");
        assert_eq!(number(10.0, 2.5), "10");
        assert_eq!(number(12_000.0, 2_000.0), "12,000");
        assert_eq!(number(2_500_000.0, 500_000.0), "2.5 M");
        assert_eq!(number(0.05, 0.05), "0.05");
        assert_eq!(number(0.125, 0.125), "0.125");
        assert_eq!(number(128_000.0, 32_000.0), "128,000");
        assert_eq!(seconds(5_400.0), "1.5 h");
        assert_eq!(seconds(0.25), "250 ms");
    }
}
