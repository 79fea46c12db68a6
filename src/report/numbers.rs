//! How numbers look in text reports.

/// A number with three significant digits or so, and no more decimals than it needs.
pub(super) fn short(value: f64) -> String {
    let magnitude = value.abs();
    match magnitude {
        _ if !magnitude.is_finite() => "-".to_owned(),
        _ if magnitude >= 1_000.0 => grouped(value.round() as i64),
        _ if magnitude >= 100.0 => format!("{value:.0}"),
        _ if magnitude >= 10.0 => format!("{value:.1}"),
        _ if magnitude >= 1.0 => format!("{value:.2}"),
        _ if magnitude >= 0.001 => format!("{value:.3}"),
        _ if magnitude > 0.0 => format!("{value:.2e}"),
        _ => "0".to_owned(),
    }
}

/// A number or a dash.
pub(super) fn short_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), short)
}

/// A share as per cent.
pub(super) fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value != 0.0 && value.abs() < 0.1 {
        format!("{value:.3} %")
    } else {
        format!("{value:.1} %")
    }
}

/// A share as per cent, or a dash.
pub(super) fn percent_or_dash(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), percent)
}

/// A whole number with thousands separated.
pub(super) fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [(0.0, "0"), (0.01234, "0.012"), (1.234, "1.23"), (12.34, "12.3")];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert_eq!(short(1_234_567.0), "1,234,567");
        assert_eq!(grouped(-1_234), "-1,234");
        assert_eq!((percent(0.9876).as_str(), percent(0.0005).as_str()), ("98.8 %", "0.050 %"));
    }
}
