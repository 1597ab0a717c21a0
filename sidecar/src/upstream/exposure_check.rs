//! Looks whether the service can be reached without the sidecar: on the address of the pod, where it
//! should not listen.
//!
//! A look from inside cannot prove that nobody else gets through. It finds the one mistake that is made
//! again and again: a service that binds every address.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use runtime::health::Condition;
use tokio::net::TcpStream;

use crate::background::Work;
use crate::telemetry::metrics::Metrics;
use crate::upstream::{Endpoint, UpstreamAddress};

const INTERVAL: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Looks once a minute.
#[derive(Debug)]
pub(crate) struct ExposureProbe {
    pub(crate) target: SocketAddr,
    pub(crate) metrics: Metrics,
    /// Where being reachable is a reason not to be ready.
    pub(crate) ready: Option<Condition>,
}

/// Where the service would answer on the pod's address; `None` for a socket file.
pub(crate) fn target(upstream: &UpstreamAddress, pod: IpAddr) -> Option<SocketAddr> {
    match upstream.endpoint {
        Endpoint::Tcp { port, .. } => Some((pod, port).into()),
        Endpoint::Unix(_) => None,
    }
}

/// Returns true where something accepts connections at `target`.
pub(crate) async fn answers(target: SocketAddr) -> bool {
    let connecting = TcpStream::connect(target);
    tokio::time::timeout(CONNECT_TIMEOUT, connecting)
        .await
        .is_ok_and(|connected| connected.is_ok())
}

impl ExposureProbe {
    /// Tells what is new about `answers`; `before` is what was told last.
    fn tell(&self, before: Option<bool>, answers: bool) {
        self.metrics.bypass_possible(answers);
        if before == Some(answers) {
            return;
        }
        if answers {
            tracing::warn!(
                address = %self.target,
                "the service answers on the pod's address: whoever reaches it there needs no token. \
                 Have it listen on 127.0.0.1 or on a Unix socket"
            );
        } else {
            tracing::info!(address = %self.target, "the service does not answer on the pod's address");
        }
        if let Some(ready) = &self.ready {
            if answers {
                ready.unmet("the service can be reached without the sidecar");
            } else {
                ready.met();
            }
        }
    }
}

#[async_trait]
impl Work for ExposureProbe {
    async fn run(&self) -> Result<Infallible, String> {
        let mut before = None;
        loop {
            let answers = answers(self.target).await;
            self.tell(before, answers);
            before = Some(answers);
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use runtime::health::Health;

    use super::*;
    use crate::telemetry::metrics::TokenCacheCounters;

    #[test]
    fn what_is_tried_is_the_services_port_on_the_pods_address() {
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
    async fn a_service_that_answers_there_is_found_and_costs_readiness_where_that_is_asked_for() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let health = Health::new();
        health.set_started();
        let check = ExposureProbe {
            target: listener.local_addr().unwrap(),
            metrics: Metrics::new(TokenCacheCounters::default()).0,
            ready: Some(health.condition("bypass", "not looked yet")),
        };
        assert!(answers(check.target).await);
        check.tell(None, true);
        assert!(!health.is_ready());
        drop(listener);
        assert!(!answers(check.target).await);
        check.tell(Some(true), false);
        assert!(health.is_ready());
    }
}
