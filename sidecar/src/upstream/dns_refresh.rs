//! Resolves the service's name periodically: after a restart it may have another address.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use super::{Endpoint, Upstream};
use crate::discovery::LOOKUP_TIMEOUT;

/// The interval of Envoy: short enough to follow a restart, long enough for a resolver's cache.
const INTERVAL: Duration = Duration::from_secs(5);
/// Min pause between two lookups, even after failures.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// Background task that updates the addresses of an [`Upstream`].
#[derive(Debug)]
pub(crate) struct UpstreamNames {
    upstream: Arc<Upstream>,
    host: String,
    port: u16,
}

impl UpstreamNames {
    /// Returns the task; `None` if the upstream has no name to resolve.
    pub(crate) fn for_upstream(upstream: &Arc<Upstream>) -> Option<Self> {
        match &upstream.settings.address.endpoint {
            Endpoint::Tcp { host, port } if host.parse::<std::net::IpAddr>().is_err() => {
                Some(Self {
                    upstream: Arc::clone(upstream),
                    host: host.clone(),
                    port: *port,
                })
            }
            _ => None,
        }
    }

    async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let lookup = tokio::net::lookup_host((self.host.as_str(), self.port));
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, lookup)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        in_order(found)
    }

    /// Applies changed addresses. After an error the known addresses stay: only the resolver may be down.
    fn update(&self, known: &mut Vec<SocketAddr>, found: io::Result<Vec<SocketAddr>>) {
        match found {
            Ok(found) if found != *known => {
                tracing::info!(host = self.host, addresses = ?found, "the service's name has other addresses");
                self.upstream.set_addresses(&found);
                *known = found;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(host = self.host, %error, "the service's name does not resolve");
            }
        }
    }

    /// Resolves periodically, and when a connection was lost.
    pub(crate) async fn run(self) -> Result<Infallible, String> {
        let mut known = self.upstream.addresses();
        loop {
            self.update(&mut known, self.resolve().await);
            // Before the wait: connections can be lost faster than a resolver may be queried.
            tokio::time::sleep(MIN_INTERVAL).await;
            // The timeout is no error, just the usual interval.
            let _ = tokio::time::timeout(INTERVAL, self.upstream.lost.notified()).await;
        }
    }
}

/// Resolves a name to its addresses, in the order in which they are tried.
pub(super) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    in_order((host, port).to_socket_addrs()?)
}

/// Sorts the addresses, because resolvers do not; IPv4 first, because most services bind
/// `127.0.0.1` and `localhost` is both.
fn in_order(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = addresses.collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no address"));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::upstream::tests;

    fn upstream(address: &str) -> Arc<Upstream> {
        Arc::new(tests::upstream(address).unwrap())
    }

    #[test]
    fn localhost_means_ipv4_first() {
        let addresses = resolve("localhost", 1).unwrap();
        assert_eq!(addresses[0], ([127, 0, 0, 1], 1).into());
        assert!(resolve("::1", 1).unwrap()[0].is_ipv6());
        assert!(resolve("postern.invalid", 1).is_err());
    }

    #[test]
    fn only_a_name_is_resolved_again() {
        assert!(UpstreamNames::for_upstream(&upstream("http://localhost:1")).is_some());
        for address in ["http://127.0.0.1:1", "http://[::1]:1", "unix:/a"] {
            assert!(
                UpstreamNames::for_upstream(&upstream(address)).is_none(),
                "{address}"
            );
        }
    }

    #[test]
    fn a_failed_lookup_keeps_the_addresses() {
        let upstream = upstream("http://postern.invalid:1");
        let names = UpstreamNames::for_upstream(&upstream).unwrap();
        let mut known = Vec::new();
        names.update(&mut known, Ok(vec!["127.0.0.1:1".parse().unwrap()]));
        names.update(&mut known, Err(io::ErrorKind::NotFound.into()));
        assert!(upstream.peer().is_some());
    }
}
