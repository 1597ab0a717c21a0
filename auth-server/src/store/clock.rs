//! The clock of the store, by which all servers and commands agree.

use std::sync::atomic::{AtomicI64, Ordering};

use postern_process::clock::unix_now;

use crate::store::{Store, StoreError};

/// Seconds of difference that are ignored: a network round trip is no more precise.
const NOTICEABLE: u64 = 5;

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

    /// Returns the measured difference of the clocks; 0 before the first measurement.
    pub(crate) fn skew_seconds(&self) -> i64 {
        self.skew.load(Ordering::Relaxed)
    }

    pub(crate) fn is_noticeable(&self) -> bool {
        self.skew_seconds().unsigned_abs() >= NOTICEABLE
    }
}
