//! Rate limits for logins and key retrievals: decisions on a clock that the caller passes in, in
//! tables of bounded size.

mod account_lockout;
mod address_limit;
mod failed_attempts;
mod permits;
mod token_bucket;

use std::hash::{Hash, RandomState};
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;

pub(crate) use self::account_lockout::AccountLockout;
pub(crate) use self::address_limit::AddressLimit;
pub(crate) use self::permits::{Permit, Permits};
pub(crate) use self::token_bucket::{Rate, TokenBucket};

/// Bounds each table to some megabytes; the least recently used entry makes room. Evicting one
/// costs an attacker as many password checks on other names, which is more than waiting.
const MAX_ENTRIES: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// A table of bounded size.
type Table<K, V> = LruCache<K, V, RandomState>;

/// Creates a table that grows as it is used: one with a capacity has the memory of all its entries at once.
fn table<K: Hash + Eq, V>() -> Table<K, V> {
    let mut table = LruCache::unbounded_with_hasher(RandomState::new());
    table.resize(MAX_ENTRIES);
    table
}

/// Rejection for now, with the time until the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetryAfter(pub(crate) Duration);

impl RetryAfter {
    /// Rounds up to whole seconds for `Retry-After`; never 0, which would invite an immediate
    /// retry.
    pub(crate) fn seconds(self) -> u32 {
        let rounded_up = self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0);
        u32::try_from(rounded_up).unwrap_or(u32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_rounded_up_and_never_0() {
        for (milliseconds, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (60_000, 60)] {
            let wait = RetryAfter(Duration::from_millis(milliseconds));
            assert_eq!(wait.seconds(), seconds, "{milliseconds} ms");
        }
    }
}
