//! The durations of settings: one way to write them in flags, variables and files.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Units, the largest first, as they are printed.
const UNITS: [(&str, u32); 4] = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];

/// A whole number of seconds, written as `90`, `90s`, `10m`, `2h` or `30d`, printed in the largest
/// unit that needs no fraction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(u32);

/// The error for a text that is not a whole number of a known unit, or is too large.
const EXPECTED: &str = "expected a duration, as in 90, 90s, 10m, 2h or 30d";

impl Seconds {
    /// Wraps a number of seconds.
    #[must_use]
    pub const fn new(seconds: u32) -> Self {
        Self(seconds)
    }

    /// Returns the number of seconds.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the duration.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0 as u64)
    }

    /// Returns the duration; `None` for 0, which means no limit.
    #[must_use]
    pub fn limit(self) -> Option<Duration> {
        match self.0 {
            0 => None,
            _ => Some(self.duration()),
        }
    }
}

impl FromStr for Seconds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match text.strip_prefix(digits) {
            None | Some("") => "s",
            Some(unit) => unit,
        };
        let (_, seconds) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or(EXPECTED)?;
        let Ok(number) = digits.parse::<u32>() else {
            return Err(EXPECTED);
        };
        // A number that overflows in seconds is too large, and must not wrap around.
        number.checked_mul(*seconds).map(Self).ok_or(EXPECTED)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, seconds) in UNITS {
            if self.0 > 0 && self.0.is_multiple_of(seconds) {
                return write!(f, "{}{name}", self.0 / seconds);
            }
        }
        f.write_str("0s")
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Parses the value of a flag that takes only durations of `range`.
pub fn within(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<Seconds, String> + Clone {
    move |text| {
        let seconds: Seconds = text.parse()?;
        if range.contains(&seconds.0) {
            return Ok(seconds);
        }
        let shortest = Seconds(*range.start());
        Err(match *range.end() {
            u32::MAX => format!("expected {shortest} or more"),
            longest => format!("expected {shortest} to {}", Seconds(longest)),
        })
    }
}

/// Parses the value of a flag that must not be 0.
///
/// # Errors
/// The expected range.
pub fn at_least_one(text: &str) -> Result<Seconds, String> {
    within(1..=u32::MAX)(text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_duration_is_seconds_or_has_a_unit() {
        for (text, seconds, printed) in [
            ("0", 0, "0s"),
            ("1", 1, "1s"),
            ("90", 90, "90s"),
            ("90s", 90, "90s"),
            ("60", 60, "1m"),
            ("10m", 600, "10m"),
            ("18000", 18_000, "5h"),
            ("24h", 86_400, "1d"),
            ("30d", 2_592_000, "30d"),
            ("4294967295", u32::MAX, "4294967295s"),
        ] {
            let parsed: Result<Seconds, _> = text.parse();
            assert_eq!(parsed, Ok(Seconds(seconds)), "{text}");
            assert_eq!(Seconds(seconds).to_string(), printed);
            assert_eq!(printed.parse(), parsed);
        }
    }

    #[test]
    fn everything_else_is_rejected() {
        let texts = "|s|-1|-1s|1.5|1 s| 1|1w|1M|1S|1ms|5s5|1h30m|soon|4294967296|49711d";
        for text in texts.split('|') {
            assert_eq!(text.parse::<Seconds>(), Err(EXPECTED), "{text}");
        }
    }

    #[test]
    fn a_duration_out_of_range_is_rejected_with_the_range() {
        let rejected = |text: &str| within(1..=300)(text).unwrap_err();
        assert_eq!(rejected("0"), "expected 1s to 5m");
        assert_eq!(rejected("301s"), "expected 1s to 5m");
        assert_eq!(rejected("x"), EXPECTED);
        assert_eq!(within(1..=300)("5m"), Ok(Seconds(300)));
        assert_eq!(at_least_one("0"), Err("expected 1s or more".to_owned()));
    }
}
