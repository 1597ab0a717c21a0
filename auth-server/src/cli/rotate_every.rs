//! `--rotate-every`.

use std::fmt;
use std::str::FromStr;

use runtime::command_line::seconds::{Seconds, at_least_one};

/// A duration, or `off`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RotateEvery(Option<Seconds>);

impl FromStr for RotateEvery {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match at_least_one(text) {
            _ if text == "off" => Ok(Self(None)),
            Ok(duration) => Ok(Self(Some(duration))),
            Err(_) => Err("expected a duration, as in 86400, 24h or 30d, or off"),
        }
    }
}

impl fmt::Display for RotateEvery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("off"),
            Some(duration) => write!(f, "{duration}"),
        }
    }
}

impl RotateEvery {
    /// Returns the interval; `None` if off.
    pub(crate) const fn interval(self) -> Option<Seconds> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_schedule_is_a_duration_or_off() {
        for (text, every, expected) in [
            ("off", None, "off"),
            ("86400", Some(86_400), "1d"),
            ("30d", Some(2_592_000), "30d"),
        ] {
            let parsed = text.parse::<RotateEvery>().unwrap();
            assert_eq!(parsed, RotateEvery(every.map(Seconds::new)));
            assert_eq!(parsed.to_string(), expected);
        }
        for text in ["", "0", "0d", "-1", "OFF", "1w", "99999999999"] {
            assert!(text.parse::<RotateEvery>().is_err(), "{text}");
        }
    }
}
