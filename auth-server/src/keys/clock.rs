//! The clock of rotations: the store's, if it has one, so that all servers and commands agree.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use runtime::process::clock::unix_now;

use super::ring::bounds::TOLERANCE;
use super::store::{KeyStore, StoreError, within_timeout};

/// Seconds of difference that are ignored: a network round trip is no more precise.
const NOTICEABLE: u64 = 5;

/// The time by this machine's clock and the store's: a moment where they agree, else a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    /// Reached by both clocks: nothing is due before.
    pub(crate) earliest: i64,
    /// Passed by neither clock: a key kept until then ends no sooner than it should.
    pub(crate) latest: i64,
    /// True if two clocks agree; stored times that contradict them are then wrong.
    pub(crate) is_certain: bool,
}

/// A time that two clocks agree on.
impl From<i64> for Time {
    fn from(now: i64) -> Self {
        Self {
            earliest: now,
            latest: now,
            is_certain: true,
        }
    }
}

/// Seconds by which this machine's clock is ahead of the store's; empty until measured, and where
/// the store has no clock.
#[derive(Debug, Default)]
pub(crate) struct ClockSkew(ArcSwapOption<i64>);

impl ClockSkew {
    pub(crate) async fn measure(&self, store: &dyn KeyStore) -> Result<(), StoreError> {
        let before = unix_now();
        let theirs = within_timeout(store.now()).await?;
        let mine = i64::midpoint(before, unix_now());
        let skew = theirs.map(|theirs| Arc::new(mine.saturating_sub(theirs)));
        self.0.store(skew);
        Ok(())
    }

    /// Returns the difference, 0 if unknown.
    pub(crate) fn seconds(&self) -> i64 {
        self.0.load().as_deref().copied().unwrap_or_default()
    }

    /// Returns the store's time, in seconds since the epoch; this machine's while that is unknown.
    pub(crate) fn now(&self) -> i64 {
        self.to_store(unix_now())
    }

    /// Converts this machine's time to the store's.
    pub(crate) fn to_store(&self, machine: i64) -> i64 {
        machine.saturating_sub(self.seconds())
    }

    /// Returns the time at which this machine's clock reads `machine`.
    pub(crate) fn time(&self, machine: i64) -> Time {
        let store = self.to_store(machine);
        if self.is_contradicted() {
            return Time {
                earliest: machine.min(store),
                latest: machine.max(store),
                is_certain: false,
            };
        }
        Time {
            is_certain: self.0.load().is_some(),
            ..Time::from(store)
        }
    }

    /// Returns the machine time at which [`Time::earliest`] is `earliest`.
    pub(crate) fn to_machine(&self, earliest: i64) -> i64 {
        let skew = self.seconds();
        let is_own_clock_first = skew < 0 && self.is_contradicted();
        earliest.saturating_add(if is_own_clock_first { 0 } else { skew })
    }

    pub(crate) fn is_noticeable(&self) -> bool {
        self.seconds().unsigned_abs() >= NOTICEABLE
    }

    fn is_contradicted(&self) -> bool {
        self.seconds().saturating_abs() > TOLERANCE
    }
}
