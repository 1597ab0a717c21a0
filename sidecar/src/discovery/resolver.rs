//! DNS queries that the operating system's resolver cannot make: SRV records, and a configured name
//! server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use hickory_resolver::proto::rr::rdata::SRV;

use super::DiscoveryError;

/// Timeout of a lookup: an unresponsive resolver must not use up the whole tick, nor block the next
/// lookup.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of one query to one server; the next one follows within the timeout of the lookup.
const QUERY_TIMEOUT: Duration = Duration::from_millis(1200);

/// A resolver for one lookup, so that a changed `/etc/resolv.conf` counts at the next tick.
pub(super) struct Resolver(TokioResolver);

impl Resolver {
    /// Queries `server`, or those of `/etc/resolv.conf`.
    pub(super) fn new(server: Option<SocketAddr>) -> std::io::Result<Self> {
        let mut builder = match server {
            Some(server) => {
                TokioResolver::builder_with_config(only(server), TokioRuntimeProvider::default())
            }
            None => TokioResolver::builder_tokio().map_err(std::io::Error::other)?,
        };
        let options = builder.options_mut();
        options.timeout = QUERY_TIMEOUT;
        options.attempts = 1;
        options.cache_size = 0;
        builder.build().map(Self).map_err(std::io::Error::other)
    }

    pub(super) async fn services(&self, name: &str) -> std::io::Result<Vec<SRV>> {
        let response = self
            .0
            .srv_lookup(name)
            .await
            .map_err(std::io::Error::other)?;
        let records = response.answers().iter();
        let services = records.filter_map(|record| match &record.data {
            RData::SRV(service) => Some(service.clone()),
            _ => None,
        });
        Ok(services.collect())
    }

    pub(super) async fn addresses(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        let response = self
            .0
            .lookup_ip(host)
            .await
            .map_err(std::io::Error::other)?;
        Ok(response.iter().collect())
    }
}

fn only(server: SocketAddr) -> ResolverConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    let connections = connections.map(|mut connection| {
        connection.port = server.port();
        connection
    });
    let server = NameServerConfig::new(server.ip(), true, connections.to_vec());
    ResolverConfig::from_parts(None, Vec::new(), vec![server])
}

/// Waits for a lookup of `name`, in bounded time.
pub(super) async fn in_time<T>(
    name: &str,
    lookup: impl Future<Output = std::io::Result<T>>,
) -> Result<T, DiscoveryError> {
    let name = name.to_owned();
    match tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(cause)) => Err(DiscoveryError::Lookup { name, cause }),
        Err(_) => Err(DiscoveryError::LookupTimeout { name }),
    }
}
