//! Consecutive failures of one name, and the wait before the next attempt.

use std::time::{Duration, Instant};

use super::RetryAfter;

/// Seconds after the first, second, … consecutive failure: a typing error costs little, guessing is
/// limited to one attempt a minute.
const DELAYS: [u64; 7] = [1, 3, 5, 10, 20, 30, 60];
/// Quiet time after which failures are forgotten; so long that rotating through networks gains little.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Failures {
    in_a_row: usize,
    last: Instant,
}

impl Failures {
    pub(crate) fn after(former: Option<Self>, now: Instant) -> Self {
        let in_a_row = match former {
            Some(failures) => failures.in_a_row(now),
            None => 0,
        };
        Self {
            in_a_row: in_a_row.saturating_add(1),
            last: now,
        }
    }

    /// Checks the wait.
    ///
    /// # Errors
    /// [`RetryAfter`] within the delay after the last failure.
    pub(crate) fn check(&self, now: Instant) -> Result<(), RetryAfter> {
        let index = self.in_a_row.min(DELAYS.len()).saturating_sub(1);
        let delay = Duration::from_secs(DELAYS.get(index).copied().unwrap_or_default());
        match (self.last + delay).saturating_duration_since(now) {
            Duration::ZERO => Ok(()),
            left => Err(RetryAfter(left)),
        }
    }

    pub(crate) fn in_a_row(&self, now: Instant) -> usize {
        if now.saturating_duration_since(self.last) < FORGOTTEN_AFTER {
            self.in_a_row
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_day_without_another_forgets_them() {
        let start = Instant::now();
        let seven = (0..7).fold(None, |failures, _| Some(Failures::after(failures, start)));
        let (before, after) = (FORGOTTEN_AFTER - SECOND, FORGOTTEN_AFTER);
        let again = Failures::after(seven, start + before);
        assert_eq!(again.check(start + before), Err(RetryAfter(60 * SECOND)));
        let anew = Failures::after(seven, start + after);
        assert_eq!(anew.check(start + after), Err(RetryAfter(SECOND)));
        assert!(seven.unwrap().check(start + after).is_ok());
    }
}
