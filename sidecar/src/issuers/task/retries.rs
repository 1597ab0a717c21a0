//! Retries while no key is usable: beside the ticks of the schedule, after growing pauses.

use std::time::{Duration, Instant};

use postern_process::pauses::Pauses;

const RETRIES: Pauses = Pauses {
    first: Duration::from_secs(1),
    last: Duration::from_secs(10),
};

/// The attempts since keys were last usable.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    retry: Option<Instant>,
}

impl Backoff {
    /// Records a failure at `now`, which a retry follows if no key is usable. Returns the time until
    /// the next attempt: the retry or the tick, whichever is first.
    pub(super) fn failed(&mut self, now: Instant, until_tick: Duration, retries: bool) -> Duration {
        self.failures = self.failures.saturating_add(1);
        if !retries {
            self.retry = None;
            return until_tick;
        }
        let pause = RETRIES.after(self.failures);
        self.retry = Some(now + pause);
        pause.min(until_tick)
    }

    /// Returns the time of a retry before the tick.
    pub(super) const fn retry(&self) -> Option<Instant> {
        self.retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_to_ten_seconds_and_the_tick_may_come_first() {
        for (until_tick, retries, waits) in [
            (60, true, [1, 2, 4, 8, 10, 10, 10]),
            (3, true, [1, 2, 3, 3, 3, 3, 3]),
            (60, false, [60; 7]),
        ] {
            let (mut backoff, now) = (Backoff::default(), Instant::now());
            let seen = waits.map(|_| {
                let wait = backoff.failed(now, Duration::from_secs(until_tick), retries);
                assert_eq!(backoff.retry().is_some(), retries);
                wait.as_secs()
            });
            assert_eq!(seen, waits);
        }
    }
}
