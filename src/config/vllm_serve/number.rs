//! Whole numbers as vLLM lets people write them.

/// `4096`, `128k` = 128,000, `25.6k` = 25,600, `128K` = 131,072; the same with m, g and t. Only the
/// decimal suffixes take fractions.
pub fn human(text: &str) -> Option<u64> {
    let text = text.trim();
    let suffix = text.chars().last()?;
    let power = match suffix.to_ascii_lowercase() {
        'k' => 1,
        'm' => 2,
        'g' => 3,
        't' => 4,
        _ => return text.parse().ok(),
    };
    let number = &text[..text.len() - 1];
    if suffix.is_ascii_uppercase() {
        return number.parse::<u64>().ok()?.checked_mul(1_u64 << (10 * power));
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let value = number.parse::<f64>().ok()? * 1_000_f64.powi(power);
    (value < 9e15).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn suffixes_are_decimal_or_binary() {
        for (text, number) in [
            ("131072", 131_072),
            ("128k", 128_000),
            ("128K", 131_072),
            ("25.6k", 25_600),
            ("1m", 1_000_000),
            ("1M", 1_048_576),
            ("2G", 2 << 30),
            (" 1t ", 1_000_000_000_000),
        ] {
            assert_eq!(human(text), Some(number), "{text}");
        }
        for text in ["", "k", "1.5K", "-1", "auto", "1e3k", "1.k", "1kk", "infk", "4 096"] {
            assert_eq!(human(text), None, "{text}");
        }
    }
}
