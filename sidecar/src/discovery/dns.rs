//! A name with one address per instance: a headless Kubernetes service, for one.

use std::fmt;
use std::net::SocketAddr;

use tokio::net::lookup_host;

use super::{DiscoveryError, Instance, RecentAttempts, in_time};

/// The name and the port that all instances share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DnsName {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl DnsName {
    /// Resolves the name now and returns the address after the previous one.
    pub(crate) async fn next_instance(
        &self,
        attempts: &RecentAttempts,
    ) -> Result<Instance, DiscoveryError> {
        let name = self.to_string();
        let addresses = in_time(&name, self.addresses()).await?;
        let previous = attempts.last().and_then(|instance| instance.address);
        let addresses = attempts.not_failed(addresses, SocketAddr::to_string);
        let address = after(addresses, previous, fastrand::usize(..))
            .ok_or_else(|| DiscoveryError::NoAddress { name: name.clone() })?;
        Ok(Instance {
            authority: address.to_string(),
            address: Some(address),
            host: name,
        })
    }

    async fn addresses(&self) -> std::io::Result<Vec<SocketAddr>> {
        Ok(lookup_host((self.host.trim_matches(['[', ']']), self.port))
            .await?
            .collect())
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Returns the address after `previous` in a fixed order, cyclically: DNS responses have no stable order. The
/// first address is a `random` one, so that a fleet that starts together spreads over all instances.
fn after(
    mut addresses: Vec<SocketAddr>,
    previous: Option<SocketAddr>,
    random: usize,
) -> Option<SocketAddr> {
    addresses.sort_unstable();
    let position = match previous {
        Some(previous) => addresses.partition_point(|address| *address <= previous),
        None => random,
    };
    // The first address follows the last one; `None` if there are no addresses.
    addresses
        .get(position.checked_rem(addresses.len())?)
        .copied()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn address(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 9000).into()
    }

    #[test]
    fn each_tick_takes_the_next_address_in_any_response_order() {
        for (addresses, previous, next) in [
            (vec![2, 1, 3], None, Some(3)),
            (vec![3, 2, 1], Some(1), Some(2)),
            (vec![1, 2, 3], Some(3), Some(1)),
            // The previous one is gone, or the only one.
            (vec![1, 3], Some(2), Some(3)),
            (vec![2], Some(2), Some(2)),
            (vec![], Some(2), None),
        ] {
            let addresses = addresses.into_iter().map(address).collect();
            let chosen = after(addresses, previous.map(address), 5);
            assert_eq!(chosen, next.map(address));
        }
    }

    #[tokio::test]
    async fn the_address_is_connected_to_and_the_name_is_the_host() {
        let name = DnsName {
            host: "localhost".into(),
            port: 9000,
        };
        let instance = name
            .next_instance(&RecentAttempts::default())
            .await
            .unwrap();
        assert!(instance.authority.ends_with(":9000"));
        assert_eq!(
            instance.address.unwrap().to_string(),
            instance.authority,
            "connected to"
        );
        assert_eq!(instance.host, "localhost:9000");
    }

    #[tokio::test]
    async fn an_unknown_name_is_named_in_the_error() {
        let name = DnsName {
            host: "postern.invalid".into(),
            port: 9000,
        };
        let error = name
            .next_instance(&RecentAttempts::default())
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("postern.invalid:9000"),
            "{error}"
        );
    }
}
