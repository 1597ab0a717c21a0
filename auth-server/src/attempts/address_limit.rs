//! How many logins come from one client address.

use std::fmt;
use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use lru::LruCache;

use super::source::Source;
use super::{MAX_ENTRIES, Rate, TokenBucket, TooSoon};

/// One token bucket per client.
pub(crate) struct AddressLimit {
    rate: Rate,
    buckets: Mutex<LruCache<Source, TokenBucket, RandomState>>,
}

impl fmt::Debug for AddressLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressLimit").field(&self.rate).finish()
    }
}

impl AddressLimit {
    /// `None` for 0: no limit.
    pub(crate) fn per_minute(count: u32) -> Option<Self> {
        let buckets = LruCache::with_hasher(MAX_ENTRIES, RandomState::new());
        (count > 0).then(|| Self {
            rate: Rate::per_minute(count),
            buckets: Mutex::new(buckets),
        })
    }

    /// Counts one login.
    ///
    /// # Errors
    /// [`TooSoon`] where there were too many.
    pub(crate) fn admit(&self, address: IpAddr, now: Instant) -> Result<(), TooSoon> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets
            .get_or_insert_mut(Source::client(address), || TokenBucket::full(now))
            .take(self.rate, now)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn each_client_has_its_own_limit() {
        let (limit, now) = (AddressLimit::per_minute(1).unwrap(), Instant::now());
        for (address, admitted) in [
            ("192.0.2.1", true),
            ("192.0.2.1", false),
            ("::ffff:192.0.2.1", false),
            ("192.0.2.2", true),
            ("2001:db8:0:1::1", true),
            ("2001:db8:0:1:ffff::2", false),
            ("2001:db8:0:2::1", true),
        ] {
            let outcome = limit.admit(address.parse().unwrap(), now);
            assert_eq!(outcome.is_ok(), admitted, "{address}");
        }
    }

    #[test]
    fn many_addresses_take_bounded_memory() {
        let (limit, now) = (AddressLimit::per_minute(60).unwrap(), Instant::now());
        for n in 0..u32::try_from(MAX_ENTRIES.get()).unwrap() + 1000 {
            let _ = limit.admit(std::net::Ipv4Addr::from_bits(n).into(), now);
        }
        assert_eq!(limit.buckets.lock().unwrap().len(), MAX_ENTRIES.get());
    }
}
