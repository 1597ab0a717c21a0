//! Log lines that would repeat with each connection, request or failure.

use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(60);

/// The last time that a repeating line was logged.
#[derive(Debug, Default)]
pub struct OnceAMinute(Option<Instant>);

impl OnceAMinute {
    /// A line that was not logged yet.
    pub const NEVER: Self = Self(None);

    /// Returns true if the line is due at `now`, and counts it as logged.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self
            .0
            .is_none_or(|last| now.saturating_duration_since(last) >= INTERVAL);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_once_a_minute() {
        let (mut line, now) = (OnceAMinute::default(), Instant::now());
        assert!(line.is_due(now));
        assert!(!line.is_due(now + INTERVAL / 2));
        assert!(line.is_due(now + INTERVAL));
    }
}
