//! The port of the webhook: TLS, a bounded number of connections, a bounded body, one path.

use std::net::TcpListener as StdListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{StatusCode, header};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use runtime::net::connection_slots::{Activity, ConnectionSlots};
use runtime::net::listener;
use runtime::net::write_deadline::WriteDeadline;
use runtime::tls::clients::ClientTls;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::metrics::WebhookMetrics;
use crate::admission::{NotAReview, Outcome, review};
use crate::object::text;
use crate::settings::Settings;

/// Its name in the log.
const PORT: &str = "webhook port";
/// The path in the webhook's configuration.
const PATH: &str = "/mutate";
/// Stored objects have 1.5 MiB at the most, and the old one is sent beside the new one.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// Far more than the largest workload has: a value takes up to 1 KiB of memory while it is read.
const MAX_VALUES: usize = 50_000;
/// The API server keeps a few. A peer that sends nothing has one for [`listener::CLIENT_IDLE`], or
/// until another one needs its place.
const MAX_CONNECTIONS: usize = 128;
/// Bodies in memory: 192 MiB at the most.
const MAX_BODIES: usize = 48;
/// Reviews at once, each with 100 MiB at the most.
const MAX_REVIEWS: usize = 2;
/// Of a body, which the API server sends at once. Behind 127 slow ones it waits for less than 3 s, and
/// its review still ends in the 5 s of its configuration.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// Of a handshake, of a request, and of a blocked write: the API server waits for 10 s by default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that are idle for longer are closed by the API server itself.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Reviews of objects.
#[derive(Clone)]
pub(super) struct Reviews {
    settings: Arc<Settings>,
    metrics: WebhookMetrics,
    tls: Arc<ClientTls>,
    bodies: Arc<Semaphore>,
    at_once: Arc<Semaphore>,
}

impl Reviews {
    pub(super) fn new(settings: Settings, metrics: WebhookMetrics, tls: Arc<ClientTls>) -> Self {
        Self {
            settings: Arc::new(settings),
            metrics,
            tls,
            bodies: Arc::new(Semaphore::new(MAX_BODIES)),
            at_once: Arc::new(Semaphore::new(MAX_REVIEWS)),
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
        let connections = GracefulShutdown::new();
        let routes = routes(self.clone());
        let slots = ConnectionSlots::new(PORT, MAX_CONNECTIONS);
        loop {
            let next = async {
                let (stream, peer) = listener::accept(&listener, PORT).await;
                (slots.take(peer.ip(), false).await, stream)
            };
            tokio::select! {
                _ = stop.changed() => break,
                (slot, stream) = next => if let Some(slot) = slot {
                    let (tls, routes) = (Arc::clone(&self.tls), routes.clone());
                    let (activity, watcher) = (slot.activity().clone(), connections.watcher());
                    let serving = serve_connection(tls, stream, routes, activity, watcher);
                    tokio::spawn(async move { slot.serve(pin!(serving), || ()).await });
                }
            }
        }
        drop(listener);
        let _ = timeout(DRAIN_TIMEOUT, connections.shutdown()).await;
        Ok(())
    }

    fn reviewed(&self, body: &[u8]) -> Response {
        let reviewed = bounded(body).and_then(|body| review(body, &self.settings));
        let (outcome, response) = match reviewed {
            Ok(reviewed) => reviewed,
            Err(error) => {
                self.metrics.count(Outcome::Malformed);
                warn!(%error, "request rejected");
                return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response();
            }
        };
        self.metrics.count(outcome);
        if outcome == Outcome::Rejected {
            let reason = text(&response, "/response/status/message");
            info!(reason, "object rejected");
        }
        let json = [(header::CONTENT_TYPE, "application/json")];
        (json, Body::from(response.to_string())).into_response()
    }
}

/// Returns the body if it holds no more values than a manifest: they take many times its bytes.
fn bounded(body: &[u8]) -> Result<&[u8], NotAReview> {
    let mut is_text = false;
    let mut is_escaped = false;
    let values = body.iter().filter(|byte| {
        let is_quote = **byte == b'"' && !is_escaped;
        is_escaped = is_text && **byte == b'\\' && !is_escaped;
        is_text ^= is_quote;
        !is_text && matches!(**byte, b',' | b':' | b'[' | b'{')
    });
    match values.take(MAX_VALUES + 1).count() {
        count if count > MAX_VALUES => Err(NotAReview::TOO_MANY_VALUES),
        _ => Ok(body),
    }
}

fn routes(reviews: Reviews) -> Router {
    let respond = async move |request: Request| {
        let served = reviewed_in_turn(reviews, request);
        timeout(TIMEOUT, served)
            .await
            .unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
    };
    Router::new().route(PATH, post(respond))
}

/// Reads the body, and reviews it when its turn has come: slow peers hold up no reviews.
async fn reviewed_in_turn(reviews: Reviews, request: Request) -> Response {
    if request.body().size_hint().lower() > MAX_BODY_BYTES as u64 {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    }
    let Ok(of_body) = Arc::clone(&reviews.bodies).acquire_owned().await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let activity = request.extensions().get::<Activity>().cloned();
    let body = match timeout(BODY_TIMEOUT, to_bytes(request.into_body(), MAX_BODY_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Err(_) => return StatusCode::REQUEST_TIMEOUT.into_response(),
    };
    activity.inspect(Activity::serves);
    let Ok(of_review) = Arc::clone(&reviews.at_once).acquire_owned().await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    // A large object takes milliseconds, which other connections need not wait for. The review goes
    // on after a timeout, and keeps its place until its end.
    let review = move || {
        let _permits = (of_body, of_review);
        reviews.reviewed(&body)
    };
    tokio::task::spawn_blocking(review)
        .await
        .unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

async fn serve_connection(
    tls: Arc<ClientTls>,
    stream: TcpStream,
    routes: Router,
    activity: Activity,
    watcher: Watcher,
) {
    let stream = WriteDeadline::new(stream, TIMEOUT);
    let stream = match tls.accept(stream, TIMEOUT).await {
        Ok(stream) => stream,
        Err(error) => {
            debug!(%error, "TLS handshake failed");
            return;
        }
    };
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        let activity = activity.clone();
        request.extensions_mut().insert(activity.clone());
        let response = routes.call(request);
        async move {
            let response = response.await;
            activity.waits_for_request();
            response
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(listener::CLIENT_IDLE)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        debug!(%error, "connection ended");
    }
}
