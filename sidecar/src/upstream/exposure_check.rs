//! Probes the service on the pod's address, where clients would reach it without the sidecar.
//!
//! A probe from inside the pod cannot prove that no client gets through. It finds the most common
//! mistake: a service that binds every address.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use runtime::admin::health::Condition;
use tokio::net::TcpStream;

use crate::telemetry::metrics::Metrics;
use crate::upstream::{Endpoint, UpstreamAddress};

const INTERVAL: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Probe that runs once a minute.
#[derive(Debug)]
pub(crate) struct ExposureProbe {
    pub(crate) target: SocketAddr,
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
    let connecting = TcpStream::connect(target);
    tokio::time::timeout(CONNECT_TIMEOUT, connecting)
        .await
        .is_ok_and(|connected| connected.is_ok())
}

impl ExposureProbe {
    /// Reports the result of a probe if it differs from the one `before`.
    fn report(&self, before: Option<bool>, is_exposed: bool) {
        self.metrics.upstream_exposed.set(i64::from(is_exposed));
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

    /// Probes once a minute.
    pub(crate) async fn run(self) -> Result<Infallible, String> {
        let mut before = None;
        loop {
            let is_exposed = probe(self.target).await;
            self.report(before, is_exposed);
            before = Some(is_exposed);
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use runtime::admin::health::Health;

    use super::*;
    use crate::telemetry::metrics::TokenCacheCounters;

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

    #[tokio::test]
    async fn an_exposed_service_is_found_and_may_end_readiness() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let health = Health::new();
        health.set_started();
        let check = ExposureProbe {
            target: listener.local_addr().unwrap(),
            metrics: Metrics::new(&TokenCacheCounters::default()).0,
            ready: Some(health.condition("exposure", "not probed yet")),
        };
        assert!(probe(check.target).await);
        check.report(None, true);
        assert!(!health.is_ready());
        drop(listener);
        assert!(!probe(check.target).await);
        check.report(Some(true), false);
        assert!(health.is_ready());
    }
}
