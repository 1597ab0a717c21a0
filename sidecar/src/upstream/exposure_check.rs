//! Probes the service on the pod's address, where clients would reach it without the sidecar.
//!
//! A probe from inside the pod cannot prove that no client gets through. It finds the most common
//! mistake: a service that binds every address.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pingora::upstreams::peer::Peer;
use postern_transport::admin::health::Condition;
use tokio::net::TcpStream;

use crate::telemetry::metrics::Metrics;
use crate::upstream::{Endpoint, Upstream, UpstreamAddress};

const INTERVAL: Duration = Duration::from_secs(60);
/// The interval while the service is down: the result has to be known before a rollout goes on.
const INTERVAL_WHILE_DOWN: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Probe that runs once a minute, and each second while the service is down.
#[derive(Debug)]
pub(crate) struct ExposureProbe {
    pub(crate) target: SocketAddr,
    /// The service, whose own address shows if it is up.
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) metrics: Metrics,
    /// Set if an exposed service is not ready.
    pub(crate) ready: Option<Condition>,
}

/// Returns the pod's address with the service's port; `None` for a socket file.
pub(crate) fn target(upstream: &UpstreamAddress, pod: IpAddr) -> Option<SocketAddr> {
    match upstream.endpoint {
        Endpoint::Tcp { port, .. } => Some((pod, port).into()),
        Endpoint::Unix(_) => None,
    }
}

/// Returns true if `target` accepts a connection.
pub(crate) async fn probe(target: SocketAddr) -> bool {
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(target));
    matches!(connecting.await, Ok(Ok(_)))
}

impl ExposureProbe {
    /// Reports the result of a probe if it differs from the one `before`.
    fn report(&self, before: Option<bool>, is_exposed: bool) {
        self.metrics.upstream_exposed.set(i64::from(is_exposed));
        // The same result as before is neither logged nor reported again.
        if before == Some(is_exposed) {
            return;
        }
        if is_exposed {
            tracing::warn!(
                address = %self.target,
                "the service accepts connections on the pod's address, where clients need no token. \
                 Have it listen on 127.0.0.1 or on a Unix socket"
            );
        } else {
            tracing::info!(address = %self.target, "the service accepts no connections on the pod's address");
        }
        if let Some(ready) = &self.ready {
            if is_exposed {
                ready.set_not_ready("the service can be reached without the sidecar");
            } else {
                ready.set_ready();
            }
        }
    }

    /// Returns true for an exposed service; `None` while it is down.
    async fn is_exposed(&self) -> Option<bool> {
        let own = *self.upstream.peer()?.any.address().as_inet()?;
        // The own address first: a service that starts between the two probes does not pass for unexposed.
        match (probe(own).await, probe(self.target).await) {
            // If both addresses are down nothing is known, and the last result holds.
            (false, false) => None,
            (_, is_exposed) => Some(is_exposed),
        }
    }

    /// Probes without end; the last result holds while the service is down.
    pub(crate) async fn run(self) -> Result<Infallible, String> {
        let mut before = None;
        loop {
            let mut pause = INTERVAL_WHILE_DOWN;
            if let Some(is_exposed) = self.is_exposed().await {
                self.report(before, is_exposed);
                (before, pause) = (Some(is_exposed), INTERVAL);
            }
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::net::TcpListener;

    use postern_transport::admin::health::Health;

    use super::*;
    use crate::telemetry::metrics::TokenCacheCounters;
    use crate::upstream::tests::upstream;

    #[test]
    fn the_target_is_the_services_port_on_the_pods_address() {
        let pod = "10.0.0.7".parse().unwrap();
        for (upstream, expected) in [
            ("http://127.0.0.1:3000", Some("10.0.0.7:3000")),
            ("https://localhost", Some("10.0.0.7:443")),
            ("unix:/run/app.sock", None),
        ] {
            let found = target(&upstream.parse().unwrap(), pod);
            assert_eq!(found, expected.map(|text| text.parse().unwrap()));
        }
    }

    /// Returns the check of a service at 127.0.7.1 in a pod that has the address 127.0.7.2: addresses
    /// at which no other test listens.
    fn check(port: u16, health: &Health) -> ExposureProbe {
        health.set_started();
        ExposureProbe {
            target: ([127, 0, 7, 2], port).into(),
            upstream: Arc::new(upstream(&format!("http://127.0.7.1:{port}")).unwrap()),
            metrics: Metrics::new(&TokenCacheCounters::default()).0,
            ready: Some(health.condition("exposure", "not known")),
        }
    }

    /// Binds the addresses at a port where no other process listens, whichever port that is.
    fn bind_at_one_port(addresses: &[&str]) -> (u16, Vec<TcpListener>) {
        loop {
            let free = TcpListener::bind("0.0.0.0:0").unwrap();
            let port = free.local_addr().unwrap().port();
            // It holds every address, so it has to go; another process may take one meanwhile.
            drop(free);
            let bound = addresses
                .iter()
                .map(|address| TcpListener::bind((*address, port)))
                .collect();
            if let Ok(listeners) = bound {
                return (port, listeners);
            }
        }
    }

    #[tokio::test]
    async fn a_service_that_is_down_is_neither_exposed_nor_unexposed() {
        for (addresses, expected) in [
            (vec![], None),
            (vec!["127.0.7.1"], Some(false)),
            (vec!["127.0.7.1", "127.0.7.2"], Some(true)),
            (vec!["127.0.7.2"], Some(true)),
            (vec!["0.0.0.0"], Some(true)),
        ] {
            let (port, listeners) = bind_at_one_port(&addresses);
            let found = check(port, &Health::new()).is_exposed().await;
            assert_eq!(found, expected, "{addresses:?}");
            drop(listeners);
        }
    }

    #[test]
    fn an_exposed_service_may_end_readiness() {
        let health = Health::new();
        let check = check(1, &health);
        for (before, is_exposed) in [(None, true), (Some(true), false), (Some(false), true)] {
            assert!(!health.is_ready() || before == Some(false));
            check.report(before, is_exposed);
            assert_eq!(health.is_ready(), !is_exposed);
        }
    }
}
