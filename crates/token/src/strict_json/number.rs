//! Numbers as they were written.

use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// The largest integer that all JSON implementations read alike (RFC 8259 §6).
const MAX_NUMERIC_DATE: f64 = 9_007_199_254_740_991.0;
/// -2⁶³ and 2⁶³, the limits of integers of 64 bits.
const MIN_64_BITS: f64 = -9_223_372_036_854_775_808.0;
const MAX_64_BITS: f64 = 9_223_372_036_854_775_808.0;

/// A number. Two numbers are equal if they have the same value, however they are written.
#[derive(Debug, Clone)]
pub struct Number(Box<str>);

impl Number {
    /// Takes the text of a number, which the caller has checked.
    pub(super) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the number as it was written.
    pub const fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for digits that are the only spelling of their integer in digits.
    pub(crate) fn is_integer(&self) -> bool {
        let digits = self.0.strip_prefix('-').unwrap_or(&self.0);
        digits.bytes().all(|byte| byte.is_ascii_digit()) && self.as_str() != "-0"
    }

    /// Returns a `NumericDate` in seconds, which may have a fraction (RFC 7519 §2); `round` removes it on the
    /// safe side. Numbers up to 64 bits, which some issuers write for "never", become the largest exact time.
    pub(crate) fn seconds(&self, round: fn(f64) -> f64) -> Option<i64> {
        let number: f64 = self.0.parse().ok()?;
        if !(MIN_64_BITS..=MAX_64_BITS).contains(&number) {
            return None;
        }
        let number = number.clamp(-MAX_NUMERIC_DATE, MAX_NUMERIC_DATE);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the range is limited above"
        )]
        Some(round(number) as i64)
    }

    fn parts(&self) -> Option<Parts> {
        let (digits, power) = self.0.split_once(['e', 'E']).unwrap_or((&self.0, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let written = [whole.trim_start_matches('-'), fraction].concat();
        let all = written.trim_start_matches('0');
        let digits = all.trim_end_matches('0');
        // Zero in every spelling, such as `-0` and `0e5`.
        if digits.is_empty() {
            return Some(Parts::default());
        }
        let zeros = i64::try_from(all.len() - digits.len()).ok()?;
        let shift = zeros - i64::try_from(fraction.len()).ok()?;
        Some(Parts {
            is_negative: whole.starts_with('-'),
            digits: digits.to_owned(),
            power: power.parse::<i64>().ok()?.checked_add(shift)?,
        })
    }
}

/// The value of a number, however it is written.
#[derive(Default, PartialEq, Eq)]
struct Parts {
    is_negative: bool,
    /// Without zeros at their ends.
    digits: String,
    /// The power of ten to multiply the digits with.
    power: i64,
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.parts().is_some_and(|it| other.parts() == Some(it))
    }
}

impl Eq for Number {}

impl From<i64> for Number {
    fn from(number: i64) -> Self {
        Self(number.to_string().into())
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.0.to_string())
            .map_err(S::Error::custom)?
            .serialize(serializer)
    }
}
