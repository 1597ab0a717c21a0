//! The clock by which keys change places: the store's where it has one, so that all servers and
//! commands go by the same.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use process::clock::unix_now;

use super::bounds::TOLERANCE;
use super::store::{KeyStore, StoreError, within_timeout};

/// Below this a clock is as right as a look over the network can say, and no token notices.
const NOTICEABLE: u64 = 5;

/// The seconds by which this machine's clock is ahead of the store's; empty until it was measured,
/// and where the store has no clock of its own.
#[derive(Debug, Default)]
pub(crate) struct ClockSkew(ArcSwapOption<i64>);

impl ClockSkew {
    /// Compares the two clocks.
    pub(crate) async fn measure(&self, store: &dyn KeyStore) -> Result<(), StoreError> {
        let before = unix_now();
        let theirs = within_timeout(store.now()).await?;
        let mine = i64::midpoint(before, unix_now());
        let skew = theirs.map(|theirs| Arc::new(mine.saturating_sub(theirs)));
        self.0.store(skew);
        Ok(())
    }

    /// Returns the difference, 0 where nothing is known.
    pub(crate) fn seconds(&self) -> i64 {
        self.0.load().as_deref().copied().unwrap_or_default()
    }

    /// Converts this machine's time to the store's.
    pub(crate) fn to_store(&self, machine: i64) -> i64 {
        machine.saturating_sub(self.seconds())
    }

    /// Converts the store's time to this machine's.
    pub(crate) fn to_machine(&self, store: i64) -> i64 {
        store.saturating_add(self.seconds())
    }

    pub(crate) fn is_noticeable(&self) -> bool {
        self.seconds().unsigned_abs() >= NOTICEABLE
    }

    /// Tells if no clock contradicts the time; a stored time that it does not allow is wrong then.
    pub(crate) fn is_time_certain(&self) -> bool {
        self.seconds().saturating_abs() <= TOLERANCE
    }
}
