//! The clock of the store, by which all servers and commands agree.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use postern_process::clock::unix_now;

use crate::store::{Store, StoreError};

/// Seconds of difference that are ignored: a network round trip is no more precise.
const NOTICEABLE: u64 = 5;

/// Seconds of a jump that have an effect: what ended stays for minutes.
const JUMP: u64 = 60;

/// Notices that a clock was set, by one that is never.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch(Option<(i64, Instant)>);

impl ClockWatch {
    /// Returns the seconds by which the clock, which reads `now`, was set since the last call.
    pub(crate) fn jump(&mut self, now: i64, at: Instant) -> Option<i64> {
        let (before, last) = self.0.replace((now, at))?;
        let passed = at.saturating_duration_since(last).as_secs();
        let jump = now.saturating_sub(before.saturating_add_unsigned(passed));
        (jump.unsigned_abs() >= JUMP).then_some(jump)
    }
}

/// The store's time: this machine's, less the difference that was measured last.
#[derive(Debug, Default)]
pub(crate) struct StoreClock {
    /// Seconds by which this machine's clock is ahead.
    skew: AtomicI64,
}

impl StoreClock {
    pub(crate) async fn measure(&self, store: &dyn Store) -> Result<(), StoreError> {
        let before = unix_now();
        let theirs = store.now().await?;
        // The store has read its clock about halfway between request and response.
        self.skew.store(
            i64::midpoint(before, unix_now()).saturating_sub(theirs),
            Ordering::Relaxed,
        );
        Ok(())
    }

    /// Returns the time in seconds since the epoch.
    pub(crate) fn now(&self) -> i64 {
        self.store_time(unix_now())
    }

    /// Returns the time at which this machine's clock reads `machine`.
    pub(crate) fn store_time(&self, machine: i64) -> i64 {
        machine.saturating_sub(self.skew_seconds())
    }

    /// Returns what this machine's clock reads at `time`.
    pub(crate) fn to_machine(&self, time: i64) -> i64 {
        time.saturating_add(self.skew_seconds())
    }

    /// Returns the difference; 0 before it was measured.
    pub(crate) fn skew_seconds(&self) -> i64 {
        self.skew.load(Ordering::Relaxed)
    }

    pub(crate) fn is_noticeable(&self) -> bool {
        self.skew_seconds().unsigned_abs() >= NOTICEABLE
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_that_is_set_is_noticed_in_both_directions() {
        let mut watch = ClockWatch::default();
        let start = Instant::now();
        for (now, seconds, jump) in [
            (1_000, 0, None),
            (1_030, 30, None),
            (1_090, 31, None),
            (1_092, 33, None),
            (692_292, 34, Some(691_199)),
            (1_096, 37, Some(-691_199)),
            (1_096, 97, Some(-60)),
        ] {
            let found = watch.jump(now, start + Duration::from_secs(seconds));
            assert_eq!(found, jump, "{now} after {seconds} s");
        }
    }
}
