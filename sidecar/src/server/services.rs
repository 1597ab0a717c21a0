//! Services beside the proxy, each on a thread of its own: the admin port, the key refresh, the
//! certificate reload.

use std::convert::Infallible;
use std::future::pending;
use std::net::TcpListener;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use runtime::health::Health;
use runtime::metrics::Exported;
use runtime::supervisor::STOPPED_UNEXPECTEDLY;
use runtime::tls::ServerCertificate;
use runtime::traces::Export;
use runtime::{admin, tls};
use tokio::task::JoinSet;

use crate::admin::status::{self, Status};
use crate::background::BackgroundTask;
use crate::keys::refresh::Refresher;
use crate::telemetry::metrics::Metrics;

/// Probes, metrics and the status page. They respond during the drain too.
#[derive(Debug)]
pub(crate) struct AdminPort {
    pub(crate) listener: TcpListener,
    pub(crate) health: Health,
    pub(crate) metrics: Arc<Exported>,
    /// Routes for loopback peers only.
    pub(crate) commands: Router,
    /// Updated while the port is served.
    pub(crate) status: Arc<Status>,
}

impl AdminPort {
    async fn serve(&self) -> std::io::Result<()> {
        let listener = self.listener.try_clone()?;
        let (health, metrics) = (self.health.clone(), Arc::clone(&self.metrics));
        let commands = self
            .commands
            .clone()
            .merge(status::routes(Arc::clone(&self.status)));
        admin::serve(listener, health, metrics, commands, pending()).await
    }
}

#[async_trait]
impl BackgroundTask for AdminPort {
    async fn run(&self) -> Result<Infallible, String> {
        // Both sockets are open, and readiness has conditions of its own.
        self.health.set_started();
        tokio::select! {
            served = self.serve() => Err(match served {
                Ok(()) => STOPPED_UNEXPECTEDLY.to_owned(),
                Err(error) => error.to_string(),
            }),
            never = self.status.hour.follow() => match never {},
        }
    }
}

/// Reloads the certificate that clients get.
#[derive(Debug)]
pub(crate) struct CertificateReloader(pub(crate) Arc<ServerCertificate>, pub(crate) Metrics);

#[async_trait]
impl BackgroundTask for CertificateReloader {
    async fn run(&self) -> Result<Infallible, String> {
        let following = tls::follow(Arc::clone(&self.0), self.1.tls.clone());
        following.map_err(|error| error.to_string())?.await;
        Err(STOPPED_UNEXPECTEDLY.to_owned())
    }
}

/// Exports the spans of requests.
#[derive(Debug)]
pub(crate) struct SpanExport(pub(crate) Export);

#[async_trait]
impl BackgroundTask for SpanExport {
    async fn run(&self) -> Result<Infallible, String> {
        self.0.run().await
    }
}

/// Keeps the verification keys of each issuer fresh.
#[derive(Debug)]
pub(crate) struct KeyRefresh {
    pub(crate) refreshers: Vec<Arc<Refresher>>,
}

#[async_trait]
impl BackgroundTask for KeyRefresh {
    async fn run(&self) -> Result<Infallible, String> {
        let mut running = JoinSet::new();
        for refresher in &self.refreshers {
            running.spawn(Arc::clone(refresher).run());
        }
        match running.join_next().await {
            Some(Ok(Ok(never))) => match never {},
            Some(Ok(Err(error))) => Err(error.to_string()),
            Some(Err(error)) => Err(error.to_string()),
            None => Err(STOPPED_UNEXPECTEDLY.to_owned()),
        }
    }
}
