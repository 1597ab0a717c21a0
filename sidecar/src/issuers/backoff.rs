//! Retries while no key is usable: beside the ticks of the schedule, after growing pauses.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Seconds between a failed attempt and the next one; the last value repeats.
const PAUSES: [u64; 5] = [1, 2, 4, 8, 10];

/// The attempts since keys were last usable. Rejections read them, the refresh writes them.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    last: Mutex<Option<Failed>>,
    /// Notified at the end of an attempt.
    changed: Notify,
}

/// The last attempt that failed.
#[derive(Debug, Clone, Copy)]
struct Failed {
    in_a_row: usize,
    /// The next fetch: of the schedule or the retry, whichever is first.
    next: Instant,
    /// `None` if only the schedule fetches.
    retry: Option<Instant>,
}

impl Attempts {
    /// Records a failure at `now`, and returns the time until the next attempt.
    pub(crate) fn failed(&self, now: Instant, until_tick: Duration, retries: bool) -> Duration {
        let mut last = self.last();
        let in_a_row = last.map_or(0, |failed| failed.in_a_row);
        let pause = retries.then(|| pause_after(in_a_row));
        let wait = pause.map_or(until_tick, |pause| pause.min(until_tick));
        *last = Some(Failed {
            in_a_row: in_a_row + 1,
            next: now + wait,
            retry: pause.map(|pause| now + pause),
        });
        self.changed.notify_one();
        wait
    }

    /// Records that keys are usable.
    pub(crate) fn succeeded(&self) {
        *self.last() = None;
        self.changed.notify_one();
    }

    /// Waits for the end of an attempt, or returns at once where one ended since the last call.
    /// Only the refresh calls it.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the time of a retry before the tick.
    pub(crate) fn retry(&self) -> Option<Instant> {
        self.last().and_then(|failed| failed.retry)
    }

    /// Records that the retry at `at` was made, one for each failure. The retry of a later failure
    /// stays.
    pub(crate) fn retried(&self, at: Option<Instant>) {
        if let Some(failed) = self.last().as_mut().filter(|failed| failed.retry == at) {
            failed.retry = None;
        }
    }

    /// Returns the whole seconds until the next attempt, at least 1, for `Retry-After`.
    pub(crate) fn seconds_until_next(&self, now: Instant) -> u64 {
        let next = self.last().map(|failed| failed.next);
        let wait = next.map(|next| next.saturating_duration_since(now));
        wait.unwrap_or_default().as_secs() + 1
    }

    fn last(&self) -> parking_lot::MutexGuard<'_, Option<Failed>> {
        self.last.lock()
    }
}

fn pause_after(failures: usize) -> Duration {
    let [.., longest] = PAUSES;
    Duration::from_secs(PAUSES.get(failures).copied().unwrap_or(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn waits(attempts: &Attempts, until_tick: Duration, retries: bool) -> Vec<u64> {
        let now = Instant::now();
        let failures = 0..7;
        failures
            .map(|_| attempts.failed(now, until_tick, retries).as_secs())
            .collect()
    }

    #[test]
    fn the_pauses_grow_to_ten_seconds_and_reset() {
        let attempts = Attempts::default();
        let growing = [1, 2, 4, 8, 10, 10, 10];
        assert_eq!(waits(&attempts, MINUTE, true), growing);
        attempts.succeeded();
        assert_eq!(waits(&attempts, MINUTE, true), growing);
    }

    #[test]
    fn the_tick_comes_first_where_it_is_sooner() {
        let attempts = Attempts::default();
        let near = waits(&attempts, Duration::from_secs(3), true);
        assert_eq!(near, [1, 2, 3, 3, 3, 3, 3]);
        let retry = attempts.retry();
        assert!(retry.is_some());
        attempts.retried(retry);
        assert_eq!(attempts.retry(), None);
        waits(&attempts, MINUTE, true);
        attempts.retried(retry);
        assert!(attempts.retry().is_some(), "of a later failure");
    }

    #[test]
    fn without_retries_only_the_tick_counts() {
        let attempts = Attempts::default();
        assert_eq!(waits(&attempts, MINUTE, false), [60; 7]);
        assert_eq!(attempts.retry(), None);
    }

    #[test]
    fn retry_after_names_the_next_attempt() {
        let attempts = Attempts::default();
        let now = Instant::now();
        assert_eq!(
            attempts.seconds_until_next(now),
            1,
            "the first is under way"
        );
        attempts.failed(now, MINUTE, false);
        for (passed, seconds) in [(0, 61), (30, 31), (59, 2), (60, 1), (70, 1)] {
            let at = now + Duration::from_secs(passed);
            assert_eq!(attempts.seconds_until_next(at), seconds, "{passed}");
        }
        attempts.succeeded();
        attempts.failed(now, MINUTE, true);
        assert_eq!(attempts.seconds_until_next(now), 2);
    }
}
