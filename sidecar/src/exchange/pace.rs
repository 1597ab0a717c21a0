//! The pace of a body on its way to a service that waits for it.

use std::time::{Duration, Instant};

/// The time that a client may take beside its pace.
const FIRST: Duration = Duration::from_secs(10);
/// Slower than any line that is in use, and enough to make a held worker expensive.
const BYTES_PER_SECOND: u64 = 1024;

/// The time that a client may still let the service wait: each received byte adds to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    left: Duration,
    /// Begin of the present wait.
    since: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            left: FIRST,
            since: None,
        }
    }
}

impl Pace {
    /// Begins a wait for the client, unless one is running; returns the time that was left for it.
    pub(super) fn left(&mut self) -> Duration {
        self.since.get_or_insert_with(Instant::now);
        self.left
    }

    /// Ends the wait with a part of so many bytes.
    pub(super) fn received(&mut self, bytes: u64) {
        let waited = self.since.take().map(|since| since.elapsed());
        let earned = Duration::from_millis(bytes.saturating_mul(1000) / BYTES_PER_SECOND);
        let left = self.left.saturating_sub(waited.unwrap_or_default());
        self.left = left.saturating_add(earned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_takes_time_and_bytes_give_some() {
        let mut pace = Pace::default();
        assert_eq!(pace.left(), FIRST);
        pace.since = pace.since.and_then(|since| since.checked_sub(FIRST / 2));
        pace.received(BYTES_PER_SECOND);
        let left = pace.left();
        let expected = FIRST / 2 + Duration::from_secs(1);
        assert!(
            left <= expected && left > expected - Duration::from_secs(5),
            "{left:?}"
        );
        pace.since = pace.since.and_then(|since| since.checked_sub(FIRST * 2));
        pace.received(0);
        assert!(pace.left().is_zero());
    }
}
