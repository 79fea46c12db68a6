//! Finds bytes that are near more often than not.
//!
//! Between two quotes of a row's metadata stand a dozen bytes. Calling a vectorised search for
//! those costs more than looking at them, eight at a time; what is further away is left to it.

use memchr::{memchr, memchr3};

/// How far is looked before the vectorised search takes over.
const NEAR_BYTES: usize = 32;

const LOWEST_BITS: u64 = 0x0101_0101_0101_0101;
const HIGHEST_BITS: u64 = 0x8080_8080_8080_8080;

/// Where the first quote is.
#[inline]
pub(super) fn quote(text: &[u8]) -> Option<usize> {
    let look = |word| zeros(word ^ every(b'"'));
    match near(text, look) {
        Near::Found(at) => Some(at),
        Near::Nothing(from) => memchr(b'"', &text[from..]).map(|at| from + at),
    }
}

/// Where the first byte is that ends or interrupts a JSON string: a quote, a backslash, or a line
/// break, which may not stand in one.
#[inline]
pub(super) fn end_of_string(text: &[u8]) -> Option<usize> {
    let look =
        |word| zeros(word ^ every(b'"')) | zeros(word ^ every(b'\\')) | zeros(word ^ every(b'\n'));
    match near(text, look) {
        Near::Found(at) => Some(at),
        Near::Nothing(from) => memchr3(b'"', b'\\', b'\n', &text[from..]).map(|at| from + at),
    }
}

enum Near {
    Found(usize),
    /// Not before this byte.
    Nothing(usize),
}

#[inline]
fn near(text: &[u8], look: impl Fn(u64) -> u64) -> Near {
    let mut from = 0;
    while from < NEAR_BYTES
        && let Some(word) = text[from..].first_chunk()
    {
        let found = look(u64::from_le_bytes(*word));
        if found != 0 {
            return Near::Found(from + found.trailing_zeros() as usize / 8);
        }
        from += 8;
    }
    Near::Nothing(from)
}

/// A word of eight equal bytes.
const fn every(byte: u8) -> u64 {
    LOWEST_BITS * byte as u64
}

/// The highest bit of each byte that is 0. Bytes above the lowest such may be marked wrongly.
#[inline]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(LOWEST_BITS) & !word & HIGHEST_BITS
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn finds_what_a_plain_search_finds(
            mut text in vec(any::<u8>(), 0..80),
            wanted in vec((prop::sample::select(&b"\"\\\n"[..]), 0..80_usize), 0..3)
        ) {
            for (byte, at) in wanted {
                if let Some(place) = text.get_mut(at) {
                    *place = byte;
                }
            }
            let plain = text.iter().position(|byte| *byte == b'"');
            prop_assert_eq!(quote(&text), plain);
            let plain = text.iter().position(|byte| matches!(byte, b'"' | b'\\' | b'\n'));
            prop_assert_eq!(end_of_string(&text), plain);
        }
    }
}
