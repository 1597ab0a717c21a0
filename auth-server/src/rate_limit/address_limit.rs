//! Limits logins from one client address, and from all addresses of its network together.

use std::net::IpAddr;
use std::time::Instant;

use parking_lot::Mutex;
use postern_transport::net::client_prefix::ClientPrefix;

use super::{Rate, RetryAfter, Table, TokenBucket, table};

/// The limit of a network as a multiple of a client's: it lets several offices behind neighbouring addresses
/// through, while an attacker with a whole network gets little more than with one address.
const ADDRESSES_PER_NETWORK: u32 = 4;

type Buckets = Table<ClientPrefix, TokenBucket>;

struct Tables {
    clients: Buckets,
    networks: Buckets,
}

pub(crate) struct AddressLimit {
    rate: Rate,
    network_rate: Rate,
    buckets: Mutex<Tables>,
}

impl AddressLimit {
    /// Returns `None` (no limit) for 0.
    pub(crate) fn per_minute(count: u32) -> Option<Self> {
        if count == 0 {
            return None;
        }
        Some(Self {
            rate: Rate::per_minute(count),
            network_rate: Rate::per_minute(count.saturating_mul(ADDRESSES_PER_NETWORK)),
            buckets: Mutex::new(Tables {
                clients: table(),
                networks: table(),
            }),
        })
    }

    /// Checks that one login would be within the limits, and counts none.
    ///
    /// # Errors
    /// [`RetryAfter`] over the limit of the address or its network.
    pub(crate) fn check(&self, address: IpAddr, now: Instant) -> Result<(), RetryAfter> {
        let Tables { clients, networks } = &*self.buckets.lock();
        let copy = |table: &Buckets, prefix| match table.peek(&prefix) {
            Some(bucket) => *bucket,
            None => TokenBucket::full(now),
        };
        let client = copy(clients, ClientPrefix::client(address));
        let network = copy(networks, ClientPrefix::network(address));
        self.after(client, network, now).map(drop)
    }

    /// Counts one login.
    ///
    /// # Errors
    /// [`RetryAfter`] over the limit of the address or its network; then the login counts for neither.
    pub(crate) fn take(&self, address: IpAddr, now: Instant) -> Result<(), RetryAfter> {
        let Tables { clients, networks } = &mut *self.buckets.lock();
        let full = || TokenBucket::full(now);
        let client = clients.get_or_insert_mut(ClientPrefix::client(address), full);
        let network = networks.get_or_insert_mut(ClientPrefix::network(address), full);
        (*client, *network) = self.after(*client, *network, now)?;
        Ok(())
    }

    /// Returns the two buckets after one login: copies, because a login that one of the two limits rejects must not
    /// count for the other one.
    fn after(
        &self,
        mut client: TokenBucket,
        mut network: TokenBucket,
        now: Instant,
    ) -> Result<(TokenBucket, TokenBucket), RetryAfter> {
        client.take(self.rate, now)?;
        network.take(self.network_rate, now)?;
        Ok((client, network))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::MAX_ENTRIES;
    use super::*;

    #[test]
    fn each_client_has_its_own_limit() {
        let (limit, now) = (AddressLimit::per_minute(1).unwrap(), Instant::now());
        for (address, accepted) in [
            ("192.0.2.1", true),
            ("192.0.2.1", false),
            ("::ffff:192.0.2.1", false),
            ("192.0.2.2", true),
            ("2001:db8:0:1::1", true),
            ("2001:db8:0:1:ffff::2", false),
            ("2001:db8:0:2::1", true),
        ] {
            let checked = limit.check(address.parse().unwrap(), now);
            let outcome = limit.take(address.parse().unwrap(), now);
            assert_eq!(outcome.is_ok(), accepted, "{address}");
            assert_eq!(checked, outcome, "{address}");
        }
    }

    #[test]
    fn the_addresses_of_one_network_have_a_limit_together() {
        for (network, addresses) in [("2001:db8:0:", 20), ("192.0.2.", 20)] {
            let (limit, now) = (AddressLimit::per_minute(5).unwrap(), Instant::now());
            let address = |n: u32| match network {
                "192.0.2." => format!("{network}{n}").parse().unwrap(),
                _ => format!("{network}{n}::1").parse().unwrap(),
            };
            let attempts = (0..5).flat_map(|_| 1..=addresses);
            let accepted = attempts.filter(|n| limit.take(address(*n), now).is_ok());
            assert_eq!(accepted.count(), 20, "{network}");
            let elsewhere = "198.51.100.1".parse().unwrap();
            assert_eq!(limit.take(elsewhere, now), Ok(()));
        }
    }

    #[test]
    fn many_addresses_take_bounded_memory() {
        let (limit, now) = (AddressLimit::per_minute(60).unwrap(), Instant::now());
        for n in 0..u32::try_from(MAX_ENTRIES.get()).unwrap() + 1000 {
            let _ = limit.take(std::net::Ipv4Addr::from_bits(n).into(), now);
        }
        let Tables { clients, networks } = &*limit.buckets.lock();
        assert_eq!(clients.len(), MAX_ENTRIES.get());
        assert!(networks.len() <= MAX_ENTRIES.get());
    }
}
