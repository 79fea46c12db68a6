//! Cells as bytes, written by hand.

use std::io::Write;

use super::ROW;
use crate::units::{NANOS_PER_SEC, Span};

/// The numbers below a hundred in two digits.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Rows as bytes.
#[derive(Debug, Default)]
pub(super) struct Row {
    bytes: Vec<u8>,
    /// Of these, those that were written. There is room for the numbers of a row behind them.
    written: usize,
}

impl Row {
    /// Writes into these bytes, whatever they are.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, written: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.written
    }

    /// What was written.
    pub(super) fn written(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.written]
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.truncate(self.written);
        self.bytes
    }

    /// Makes room for so many bytes and for the numbers behind them.
    #[inline]
    fn room(&mut self, bytes: usize) {
        let needed = self.written + bytes + ROW;
        if self.bytes.len() < needed {
            self.bytes.resize(needed + needed / 2, 0);
        }
    }

    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len());
        self.bytes[self.written..self.written + bytes.len()].copy_from_slice(bytes);
        self.written += bytes.len();
    }

    /// The last byte was none.
    pub(super) fn take_back(&mut self) {
        self.written -= 1;
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.bytes[self.written] = byte;
        self.written += 1;
    }

    #[inline]
    fn digits(&mut self, mut number: u64) {
        if number < 10 {
            return self.byte(b'0' + number as u8);
        }
        let from = self.written;
        self.written += number.ilog10() as usize + 1;
        let mut end = self.written;
        while number >= 10 {
            let pair = PAIRS[(number % 100) as usize];
            self.bytes[end - 2..end].copy_from_slice(&pair);
            (end, number) = (end - 2, number / 100);
        }
        if end > from {
            self.bytes[from] = b'0' + number as u8;
        }
    }

    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        self.digits(number);
        self.byte(b',');
    }

    pub(super) fn some(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.byte(b','),
        }
    }

    /// A word without anything that CSV must quote.
    #[inline]
    pub(super) fn word(&mut self, word: &str) {
        self.put(word.as_bytes());
        self.byte(b',');
    }

    pub(super) fn truth(&mut self, value: bool) {
        match value {
            true => self.put(b"true,"),
            false => self.put(b"false,"),
        }
    }

    /// A name, quoted where CSV needs it.
    pub(super) fn text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        if !bytes.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
            return self.word(text);
        }
        self.room(2 * bytes.len());
        self.byte(b'"');
        for &byte in bytes {
            if byte == b'"' {
                self.byte(byte);
            }
            self.byte(byte);
        }
        self.put(b"\",");
    }

    /// Seconds, as [`Span::secs_text`] writes them.
    pub(super) fn span(&mut self, span: Span) {
        self.digits(span.0 / NANOS_PER_SEC);
        let mut rest = (span.0 % NANOS_PER_SEC) as u32;
        if rest > 0 {
            let mut digits = [b'.'; 10];
            digits[9] = b'0' + (rest % 10) as u8;
            rest /= 10;
            for pair in digits[1..9].rchunks_exact_mut(2) {
                pair.copy_from_slice(&PAIRS[(rest % 100) as usize]);
                rest /= 100;
            }
            let zeros = digits.iter().rev().take_while(|digit| **digit == b'0').count();
            self.bytes[self.written..self.written + digits.len()].copy_from_slice(&digits);
            self.written += digits.len() - zeros;
        }
        self.byte(b',');
    }

    /// A ratio with six digits behind the point, as `{:.6}` writes it.
    pub(super) fn ratio(&mut self, ratio: Option<f64>) {
        match ratio.map(|ratio| (ratio, millionths(ratio))) {
            None => {}
            Some((_, Some(millionths))) => {
                self.digits(millionths / 1_000_000);
                let digits = 1_000_000 + millionths % 1_000_000;
                let point = self.written;
                self.digits(digits);
                self.bytes[point] = b'.';
            }
            Some((ratio, None)) => {
                let mut text = Vec::new();
                // Nothing that is written into memory fails.
                let _ = write!(text, "{ratio:.6}");
                self.put(&text);
            }
        }
        self.byte(b',');
    }

    /// The last comma was none.
    pub(super) fn end(&mut self) {
        self.take_back();
        self.byte(b'\n');
        self.room(0);
    }
}

/// Millionths in a number, exactly rounded, half of one to the even number; `None` unless the
/// number is between a thousandth and a million.
fn millionths(number: f64) -> Option<u64> {
    const FRACTION_BITS: u32 = 52;
    if !(1e-3..1e6).contains(&number) {
        return None;
    }
    let bits = number.to_bits();
    // The number is `mantissa` / 2^`shift`.
    let mantissa = bits & ((1 << FRACTION_BITS) - 1) | 1 << FRACTION_BITS;
    let shift = 1_023 + FRACTION_BITS - (bits >> FRACTION_BITS) as u32;
    let exact = u128::from(mantissa) * 1_000_000;
    let (whole, rest) = (exact >> shift, exact & ((1 << shift) - 1));
    let half = 1 << (shift - 1);
    let up = rest > half || rest == half && whole & 1 == 1;
    Some(whole as u64 + u64::from(up))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ratios_are_written_as_the_standard_library_does(
            number in prop_oneof![
                0.0f64..20.0, 0.0f64..2e6, (0u64..1 << 40).prop_map(|n| n as f64 / 128.0 / 16.0),
                (1u64..1 << 50, 1u64..1 << 50).prop_map(|(a, b)| a as f64 / b as f64),
            ],
        ) {
            let mut row = Row::new(vec![0; ROW]);
            row.ratio(Some(number));
            prop_assert_eq!(row.into_bytes(), format!("{number:.6},").into_bytes());
        }
    }

    #[test]
    fn no_ratio_is_an_empty_cell() {
        let mut row = Row::new(vec![0; ROW]);
        row.ratio(None);
        assert_eq!(row.into_bytes(), b",");
    }
}
