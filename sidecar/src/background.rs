//! What runs beside the proxy, each on a thread of its own: the admin port, the key refresh, the look
//! after the certificate.

use std::net::TcpListener;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use process::health::Health;
use process::tls::ServerCertificate;
use process::{admin, tls};
use prometheus_client::registry::Registry;

use crate::keys::refresh::{Refresher, Schedule};
use crate::metrics::Metrics;
use crate::status::{self, Status};

/// Probes, metrics and the status page. They go on being answered while the proxy drains.
#[derive(Debug)]
pub(crate) struct AdminPort {
    pub(crate) listener: TcpListener,
    pub(crate) health: Health,
    pub(crate) metrics: Arc<Registry>,
    /// What it answers besides, to loopback peers only.
    pub(crate) commands: Router,
    /// Kept up while the port is served.
    pub(crate) status: Arc<Status>,
}

#[async_trait]
impl BackgroundService for AdminPort {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let ended = async move {
            let _ = shutdown.changed().await;
        };
        // Both sockets are open, and readiness has conditions of its own.
        self.health.set_started();
        let (health, metrics) = (self.health.clone(), Arc::clone(&self.metrics));
        let commands = self
            .commands
            .clone()
            .merge(status::routes(Arc::clone(&self.status)));
        let serving = async {
            let listener = self.listener.try_clone()?;
            admin::serve(listener, health, metrics, commands, ended).await
        };
        let served = tokio::select! {
            served = serving => served,
            () = self.status.hour.follow() => Ok(()),
        };
        if let Err(error) = served {
            tracing::error!(%error, "the admin port is not served");
        }
    }
}

/// Looks after the certificate that clients are shown.
#[derive(Debug)]
pub(crate) struct CertificateFollower(pub(crate) Arc<ServerCertificate>, pub(crate) Metrics);

#[async_trait]
impl BackgroundService for CertificateFollower {
    async fn start(&self, _shutdown: ShutdownWatch) {
        let (shown, metrics) = (Arc::clone(&self.0), self.1.clone());
        metrics.tls.seen(shown.not_after(), None);
        let told = Arc::clone(&shown);
        let following = tls::follow(shown, move |seen| {
            metrics.tls.seen(told.not_after(), Some(seen));
        });
        match following {
            Ok(following) => following.await,
            Err(error) => tracing::error!(%error, "the TLS certificate is not followed"),
        }
    }
}

/// Keeps the verification key fresh.
#[derive(Debug)]
pub(crate) struct KeyRefresh {
    pub(crate) refresher: Arc<Refresher>,
    pub(crate) schedule: Schedule,
}

#[async_trait]
impl BackgroundService for KeyRefresh {
    async fn start(&self, _shutdown: ShutdownWatch) {
        if let Err(error) = Arc::clone(&self.refresher).run(&self.schedule).await {
            tracing::error!(%error, "the verification key is not refreshed any more");
        }
    }
}
