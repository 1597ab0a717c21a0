//! The port of the webhook: TLS, a bounded number of connections, a bounded body, one path.

use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::{StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use runtime::listener;
use runtime::write_deadline::WriteDeadline;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use super::metrics::WebhookMetrics;
use crate::kubernetes::admission::{Reviewed, review};
use crate::kubernetes::settings::Settings;

/// The path in the webhook's configuration.
const PATH: &str = "/mutate";
/// The API server accepts objects up to 3 MiB, and sends the old one beside the new one.
const MAX_BODY_BYTES: usize = 7 * 1024 * 1024;
/// The API server keeps a few; a peer that sends nothing has one for [`listener::CLIENT_IDLE`].
const MAX_CONNECTIONS: usize = 512;
/// With the body above, 224 MiB at the most.
const MAX_IN_FLIGHT: usize = 32;
/// Of a handshake, of a request, and of a blocked write: the API server waits for 10 s by default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that are idle for longer are closed by the API server itself.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Reviews of objects.
#[derive(Clone)]
pub(super) struct Reviews {
    settings: Arc<Settings>,
    metrics: WebhookMetrics,
    tls: TlsAcceptor,
}

impl Reviews {
    pub(super) fn new(settings: Settings, metrics: WebhookMetrics, tls: Arc<ServerConfig>) -> Self {
        Self {
            settings: Arc::new(settings),
            metrics,
            tls: tls.into(),
        }
    }

    /// Serves until `stop` changes, then finishes the reviews in flight.
    ///
    /// # Errors
    /// When the listener cannot be given to the runtime.
    pub(super) async fn serve(
        self,
        listener: StdListener,
        mut stop: watch::Receiver<()>,
    ) -> Result<(), String> {
        let listener = TcpListener::from_std(listener).map_err(|error| error.to_string())?;
        let connections = Arc::new(GracefulShutdown::new());
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let routes = routes(self.clone());
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return Err("no permits".to_owned());
            };
            tokio::select! {
                _ = stop.changed() => break,
                (stream, _) = listener::accept(&listener, "webhook port") => {
                    let (tls, routes) = (self.tls.clone(), routes.clone());
                    let watcher = connections.watcher();
                    tokio::spawn(serve_connection(tls, stream, routes, watcher, permit));
                }
            }
        }
        drop(listener);
        if let Some(connections) = Arc::into_inner(connections) {
            let _ = timeout(DRAIN_TIMEOUT, connections.shutdown()).await;
        }
        Ok(())
    }

    fn reviewed(&self, body: &[u8]) -> Response {
        let Reviewed {
            response,
            outcome,
            rejected,
        } = match review(body, &self.settings) {
            Ok(reviewed) => reviewed,
            Err(error) => {
                self.metrics.count_malformed();
                warn!(%error, "request rejected");
                return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response();
            }
        };
        self.metrics.count(outcome);
        if let Some(rejected) = rejected {
            info!(
                object = rejected.object,
                reason = rejected.reason,
                "object rejected"
            );
        }
        let json = [(header::CONTENT_TYPE, "application/json")];
        (json, Body::from(response.to_string())).into_response()
    }
}

fn routes(reviews: Reviews) -> Router {
    let answer = |State(reviews): State<Reviews>, body: Bytes| async move {
        // A large object takes milliseconds, which other connections need not wait for.
        tokio::task::spawn_blocking(move || reviews.reviewed(&body))
            .await
            .unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
    };
    let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    Router::new()
        .route(PATH, post(answer))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(in_flight, in_time))
        .with_state(reviews)
}

async fn serve_connection(
    tls: TlsAcceptor,
    stream: TcpStream,
    routes: Router,
    watcher: Watcher,
    permit: OwnedSemaphorePermit,
) {
    let _permit = permit;
    let stream = WriteDeadline::new(stream, TIMEOUT);
    let Ok(Ok(stream)) = timeout(TIMEOUT, tls.accept(stream)).await else {
        debug!("TLS handshake failed");
        return;
    };
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(listener::CLIENT_IDLE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    if let Err(error) = watcher.watch(connection).await {
        debug!(%error, "connection ended");
    }
}

/// Bounds the requests in flight, and ends one whose body does not arrive.
async fn in_time(
    State(in_flight): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Response {
    let length = request.body().size_hint().lower();
    if length > MAX_BODY_BYTES as u64 {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    }
    let served = async {
        let _permit = in_flight.acquire().await;
        next.run(request).await
    };
    timeout(TIMEOUT, served)
        .await
        .unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}
