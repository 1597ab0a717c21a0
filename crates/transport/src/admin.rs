//! The admin port: probes and metrics for any peer, everything else for loopback peers only.

mod access;
pub mod client;
pub mod health;
pub mod healthcheck;
pub mod page;

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode, header};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;

use self::access::{for_loopback, with_one_host};
use crate::admin::health::Health;
use crate::drain::DrainTrigger;
use crate::http_port::HttpPort;
use crate::net::connection_slots::{ConnectionSlots, Slot};
use crate::net::fd_limit::ADMIN_CONNECTIONS;
use crate::tls::expiry;
use postern_http::host::loopback::{is_loopback, names_this_machine};
use postern_process::clock;
use postern_process::files::replaced_file::REPLACED_FILES;
use postern_process::logs::log_lines::DROPPED;
use postern_process::metrics::exposition::{MEDIA_TYPE, exposition};
use postern_process::supervisor::Supervisor;

/// Its name in the log.
const PORT: &str = "admin port";
/// From the first byte of a connection to the end of a head, from there to the end of a body, and
/// for each wait until the peer reads on.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A slow reader of `/metrics` must not hold up the end of the process.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections at a time. Limits of other ports leave descriptors for these.
const _: () = assert!(MAX_OF_OTHERS + MAX_OF_LOOPBACK == ADMIN_CONNECTIONS);
/// A probe or a scrape is over within milliseconds.
const MAX_OF_OTHERS: usize = 24;
/// Reserved for the operator at the machine and for `healthcheck`. Loopback is mostly one address,
/// so a flood and a probe share it: with eight, one probe in ten was lost to 10,000 connections a
/// second.
const MAX_OF_LOOPBACK: usize = 24;

/// Serves the admin port in a task of its own, until `drain` stops accepting. The end of the program
/// waits for that. `extra` adds routes for loopback peers.
pub fn spawn(
    listener: std::net::TcpListener,
    health: &Health,
    metrics: Arc<Registry>,
    extra: Router,
    drain: DrainTrigger,
    background: &Supervisor,
) -> JoinHandle<()> {
    let port = HttpPort {
        drain,
        ..port(health.clone(), metrics, Router::new(), extra)
    };
    spawn_watches(background);
    port.spawn(listener, slots(), background)
}

/// Serves the admin port until `shutdown` resolves. `open` adds routes for any peer, `extra` for
/// loopback peers.
///
/// # Errors
/// When the listener cannot be given to the runtime.
pub async fn serve(
    listener: std::net::TcpListener,
    health: Health,
    metrics: Arc<Registry>,
    open: Router,
    extra: Router,
    background: &Supervisor,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    spawn_watches(background);
    port(health, metrics, open, extra)
        .serve(listener, slots(), shutdown)
        .await
}

/// Starts what every program with an admin port watches.
fn spawn_watches(background: &Supervisor) {
    background.spawn_critical("the watch of certificates", expiry::watch());
    background.spawn_critical("the watch of the clock", clock::watch());
}

fn port(health: Health, metrics: Arc<Registry>, open: Router, extra: Router) -> HttpPort {
    HttpPort {
        drain_timeout: DRAIN_TIMEOUT,
        ..HttpPort::new(PORT, routes(health, metrics, open, extra), TIMEOUT)
    }
}

/// Takes the slot of each peer. None of them ever counts as busy: a slow reader of metrics gives way as
/// well.
fn slots() -> impl Fn(IpAddr) -> Pin<Box<dyn Future<Output = Option<Slot>> + Send>> {
    let others = ConnectionSlots::new(PORT, MAX_OF_OTHERS);
    let loopback = ConnectionSlots::new(PORT, MAX_OF_LOOPBACK);
    move |peer| {
        let slots = if is_loopback(peer) {
            loopback.clone()
        } else {
            others.clone()
        };
        Box::pin(async move { slots.take(peer, false).await })
    }
}

/// The first routes are for kubelet and Prometheus, from outside the pod. Everything else, a route
/// added later too, is closed to other peers.
fn routes(health: Health, metrics: Arc<Registry>, open: Router, extra: Router) -> Router {
    Router::new()
        .route("/livez", get(StatusCode::OK))
        .route("/startupz", get(startup))
        .route("/readyz", get(readiness))
        .with_state(health)
        .merge(
            Router::new()
                .route("/metrics", get(metrics_text))
                .with_state(metrics),
        )
        .merge(open)
        .fallback_service(
            extra
                // The last layer runs first: a body of another peer is not waited for.
                .layer(middleware::from_fn_with_state(TIMEOUT, in_time))
                .layer(middleware::from_fn(for_loopback)),
        )
        .layer(middleware::from_fn(with_one_host))
}

/// Ends a request whose body does not arrive: of its routes none takes long by itself.
async fn in_time(State(timeout): State<Duration>, request: Request, next: Next) -> Response {
    tokio::time::timeout(timeout, next.run(request))
        .await
        .unwrap_or_else(|_| {
            let why = "the body did not arrive in time\n";
            (StatusCode::REQUEST_TIMEOUT, why).into_response()
        })
}

const fn status(holds: bool) -> StatusCode {
    if holds {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

async fn startup(State(health): State<Health>) -> StatusCode {
    status(health.is_started())
}

/// Responds with the conditions; reasons and notes, which hold addresses and paths, are for
/// loopback peers.
async fn readiness(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    State(health): State<Health>,
    headers: HeaderMap,
) -> Response {
    let status = status(health.is_ready());
    let mut conditions = health.conditions();
    // A page whose name leads here is a loopback peer as well.
    if !is_loopback(peer.ip()) || !names_this_machine(&headers) {
        for condition in &mut conditions {
            (condition.reason, condition.note) = (None, None);
        }
    }
    (status, Json(conditions)).into_response()
}

async fn metrics_text(State(registry): State<Arc<Registry>>) -> Response {
    match exposition(&registry) {
        Ok(text) => ([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "{PORT}: metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Returns the registry of a program: a prefix for all its metrics, its version, lost log
/// lines, replaced files.
#[must_use]
pub fn registry(prefix: &str, version: &'static str) -> Registry {
    let mut registry = Registry::with_prefix(prefix);
    let build = Info::new([("version", version)]);
    registry.register("build", "The running version", build);
    DROPPED.register(&mut registry);
    REPLACED_FILES.register(&mut registry);
    registry
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
