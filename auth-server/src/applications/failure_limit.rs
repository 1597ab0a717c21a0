//! Rate limit for wrong secrets.
//!
//! The right secret is exempt: 32 random bytes cannot be guessed, so a lock would only let an
//! attacker keep the real application out. The limit is for the noise of wrong ones.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::rate_limit::{Rate, RetryAfter, TokenBucket};

/// A misconfigured sidecar polls once a minute; a few dozen of one application still get the
/// precise reason.
const RATE: Rate = Rate {
    burst: 30,
    every: Duration::from_secs(2),
};
/// Shared by invented ids, assigned under a random key of this process, so that no client can aim
/// at another application's bucket.
const BUCKETS: usize = 1024;

/// Failures by id. Registered and unknown ids are treated alike, so that the limit does not
/// distinguish them.
#[derive(Debug)]
pub(super) struct FailureLimit {
    key: RandomState,
    buckets: Mutex<Vec<Option<TokenBucket>>>,
}

impl FailureLimit {
    pub(super) fn new() -> Self {
        Self {
            key: RandomState::new(),
            buckets: Mutex::new(vec![None; BUCKETS]),
        }
    }

    /// Counts one failure.
    ///
    /// # Errors
    /// [`RetryAfter`] over the limit.
    pub(super) fn failed(&self, id: &str, now: Instant) -> Result<(), RetryAfter> {
        let index = self.key.hash_one(id) as usize % BUCKETS;
        let mut buckets = self.buckets.lock();
        match buckets.get_mut(index) {
            Some(slot) => slot
                .get_or_insert_with(|| TokenBucket::full(now))
                .take(RATE, now),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_of_failures_an_id_waits_and_another_does_not() {
        let (limit, now) = (FailureLimit::new(), Instant::now());
        let failed = |id| limit.failed(id, now);
        assert!((0..RATE.burst).all(|_| failed("orders").is_ok()));
        assert_eq!(failed("orders"), Err(RetryAfter(RATE.every)));
        // One of these may share the bucket of `orders`; all three do so once in a billion runs.
        assert!(["a", "b", "c"].into_iter().any(|id| failed(id).is_ok()));
        assert_eq!(limit.failed("orders", now + RATE.every), Ok(()));
    }

    #[test]
    fn invented_ids_take_no_memory() {
        let (limit, now) = (FailureLimit::new(), Instant::now());
        for n in 0..100_000 {
            let _ = limit.failed(&n.to_string(), now);
        }
        assert_eq!(limit.buckets.lock().capacity(), BUCKETS);
    }
}
