//! Integer quantities, one type a unit, so that seconds, tokens, blocks and bytes cannot be mixed.
//!
//! Time is kept in whole nanoseconds and in two types: [`Time`] is an instant of the simulation,
//! [`Span`] a length of time. An instant minus an instant is a span; two instants cannot be added.
//! Counts ([`Tokens`], [`Blocks`], [`Bytes`]) add and subtract within their own unit only; what
//! turns one into another is a named function here.
//!
//! ```
//! use tonnage::units::{Span, Time, Tokens};
//!
//! let start = Time::ZERO + Span::from_millis(1_500);
//! assert_eq!(start - Time::ZERO, Span::parse_secs("1.5").unwrap());
//! assert_eq!(Tokens(40).blocks_floor(16).0, 2);
//! assert_eq!(Tokens(40).blocks_ceil(16).0, 3);
//! ```

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Nanoseconds in a second.
pub const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Arithmetic within one unit: `+`, `-`, their assigning forms, sums and `Display` as the number.
macro_rules! count {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $raw);

        impl $name {
            /// None of it.
            pub const ZERO: Self = Self(0);

            /// The difference, or zero where `other` is larger.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// As a floating-point number, for ratios and reports.
            #[must_use]
            pub const fn as_f64(self) -> f64 {
                self.0 as f64
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self(0), Add::add)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

/// A dense index into a `Vec`, of one kind of thing.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into the `Vec` that it numbers.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The id that stands for position `index`.
            ///
            /// # Panics
            /// If there are more than `u32::MAX` of the thing.
            #[must_use]
            pub fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("more than u32::MAX entries of one kind"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

count! {
    /// A number of tokens.
    Tokens(u64)
}
count! {
    /// A number of KV-cache blocks.
    Blocks(u64)
}
count! {
    /// A number of bytes.
    Bytes(u64)
}
count! {
    /// A length of time in whole nanoseconds.
    Span(u64)
}

id! {
    /// One replica of the served model (all GPUs of its tensor-parallel group together).
    ReplicaId
}
id! {
    /// One request as the engines know it.
    RequestId
}
id! {
    /// One worker process of the gateway.
    WorkerId
}
id! {
    /// One entry of the gateway's list of deployments.
    DeploymentId
}
id! {
    /// One request as the gateway knows it: an attempt of a client, with all retries behind it.
    CallId
}
id! {
    /// One stretch of content that only one call wrote; see [`crate::trace::lineage`].
    SegmentId
}

impl Tokens {
    /// Whole blocks of `block_size` tokens in this many tokens.
    #[must_use]
    pub const fn blocks_floor(self, block_size: u64) -> Blocks {
        Blocks(self.0 / block_size)
    }

    /// Blocks of `block_size` tokens that hold this many tokens, a last partial one included.
    #[must_use]
    pub const fn blocks_ceil(self, block_size: u64) -> Blocks {
        Blocks(self.0.div_ceil(block_size))
    }
}

impl Blocks {
    /// Tokens in this many full blocks of `block_size` tokens.
    #[must_use]
    pub const fn tokens(self, block_size: u64) -> Tokens {
        Tokens(self.0 * block_size)
    }
}

impl Bytes {
    /// In GiB (2^30 bytes).
    #[must_use]
    pub fn gib(self) -> f64 {
        self.0 as f64 / (1u64 << 30) as f64
    }

    /// In GB (10^9 bytes).
    #[must_use]
    pub fn gb(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Span {
    /// This many whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * NANOS_PER_SEC)
    }

    /// This many whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// This many whole microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// The nearest whole nanosecond to `secs`; negative numbers and NaN give zero.
    #[must_use]
    pub fn from_secs_f64(secs: f64) -> Self {
        // A float-to-int cast saturates and sends NaN to zero, which is what is wanted here.
        Self((secs * NANOS_PER_SEC as f64).round() as u64)
    }

    /// In seconds.
    #[must_use]
    pub fn secs(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC as f64
    }

    /// In milliseconds.
    #[must_use]
    pub fn millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Reads a decimal number of seconds such as `12.0625` exactly, to the nanosecond (further
    /// digits are rounded, half up). `None` for anything else, a sign and an exponent included.
    #[must_use]
    pub fn parse_secs(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() && fraction.is_empty() || !digits(whole) || !digits(fraction) {
            return None;
        }
        let secs: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut nanos = 0u64;
        for place in 0..9 {
            let digit = fraction.as_bytes().get(place).map_or(0, |b| u64::from(b - b'0'));
            nanos = nanos * 10 + digit;
        }
        let round_up = fraction.as_bytes().get(9).is_some_and(|&b| b >= b'5');
        secs.checked_mul(NANOS_PER_SEC)?.checked_add(nanos + u64::from(round_up)).map(Self)
    }

    /// The shortest decimal number of seconds that reads back as this span.
    #[must_use]
    pub fn secs_text(self) -> String {
        let (secs, nanos) = (self.0 / NANOS_PER_SEC, self.0 % NANOS_PER_SEC);
        if nanos == 0 {
            return secs.to_string();
        }
        format!("{secs}.{nanos:09}").trim_end_matches('0').to_owned()
    }
}

/// An instant of the simulation: whole nanoseconds since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The start of the simulation.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const MAX: Self = Self(u64::MAX);

    /// Seconds since the start of the simulation.
    #[must_use]
    pub fn secs(self) -> f64 {
        Span(self.0).secs()
    }

    /// The time since `earlier`, or zero where that is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0 + span.0)
    }
}

impl Sub for Time {
    type Output = Span;
    fn sub(self, earlier: Self) -> Span {
        debug_assert!(self >= earlier, "time went back: {self:?} is before {earlier:?}");
        Span(self.0 - earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_round_trip_exactly() {
        for text in ["0", "1", "0.5", "12.0625", "987654.000000001", "30.123456789"] {
            assert_eq!(Span::parse_secs(text).unwrap().secs_text(), text);
        }
    }

    #[test]
    fn seconds_are_rounded_half_up_at_the_tenth_digit() {
        assert_eq!(Span::parse_secs("0.0000000014"), Some(Span(1)));
        assert_eq!(Span::parse_secs("0.0000000015"), Some(Span(2)));
        assert_eq!(Span::parse_secs("0.9999999995"), Some(Span(NANOS_PER_SEC)));
    }

    #[test]
    fn what_is_no_decimal_number_is_refused() {
        for text in ["", ".", "-1", "+1", "1e3", "NaN", "1.2.3", " 1", "99999999999999999999"] {
            assert_eq!(Span::parse_secs(text), None, "{text:?}");
        }
    }

    #[test]
    fn blocks_floor_and_ceil() {
        assert_eq!(Tokens(0).blocks_ceil(16), Blocks(0));
        assert_eq!(Tokens(16).blocks_ceil(16), Blocks(1));
        assert_eq!(Tokens(17).blocks_ceil(16), Blocks(2));
        assert_eq!(Tokens(31).blocks_floor(16), Blocks(1));
        assert_eq!(Blocks(2).tokens(16), Tokens(32));
    }

    #[test]
    fn gib_is_not_gb() {
        assert_eq!(Bytes(1 << 30).gib(), 1.0);
        assert_eq!(Bytes(1 << 30).gb(), 1.073_741_824);
    }
}
