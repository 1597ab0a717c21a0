//! Tasks beside the proxy, each on a thread of its own: the admin port, the key refresh, the
//! certificate reload.

use std::convert::Infallible;
use std::future::pending;
use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use postern_process::supervisor::{STOPPED_UNEXPECTEDLY, Supervisor};
use postern_transport::admin;
use postern_transport::admin::health::{Condition, Health};
use postern_transport::tls::{CertificateMetrics, ServerTls};
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;

use crate::issuers::task::IssuerTask;

/// Serves, also in a drain, probes of sidecar and service, metrics, and the `commands` for loopback peers. The
/// watches of certificates and clock share its thread.
pub(crate) async fn serve_admin_port(
    listener: TcpListener,
    health: Health,
    metrics: Arc<Registry>,
    probes: Router,
    commands: Router,
    background: Supervisor,
) -> Result<Infallible, String> {
    // `set_started`: both sockets are open, and readiness has conditions of its own.
    health.set_started();
    admin::serve(
        listener,
        health,
        metrics,
        probes,
        commands,
        &background,
        pending(),
    )
    .await
    .map_err(|error| error.to_string())?;
    Err(STOPPED_UNEXPECTEDLY.to_owned())
}

/// Reloads the certificate that clients get, and the authorities of clients' certificates.
pub(crate) async fn follow_tls(
    tls: Arc<ServerTls>,
    metrics: CertificateMetrics,
    condition: Condition,
) -> Result<Infallible, String> {
    tls.follow(metrics, condition.reloads())
        .map_err(|error| error.to_string())?
        .await;
    Err(STOPPED_UNEXPECTEDLY.to_owned())
}

/// Runs the task of each issuer.
pub(crate) async fn run_issuers(tasks: Vec<IssuerTask>) -> Result<Infallible, String> {
    let mut running: JoinSet<_> = tasks.into_iter().map(IssuerTask::run).collect();
    match running.join_next().await {
        Some(Ok(Ok(never))) => match never {},
        Some(Ok(Err(error))) => Err(error.to_string()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(STOPPED_UNEXPECTEDLY.to_owned()),
    }
}
