//! Requests for reviews: one path, a bounded body, few reviews at once.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use http::StatusCode;
use postern_process::metrics::{Label, counters_by};
use postern_transport::net::connection_slots::Activity;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::admission::{Outcome, review};
use crate::container::settings::Settings;
use crate::manifest::object::text;

/// The path in the webhook's configuration.
const PATH: &str = "/mutate";
/// Stored objects have 1.5 MiB at the most, and a review carries the old and the new object.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// Bodies in memory: 192 MiB at the most.
const MAX_BODIES: usize = 48;
/// Reviews at once, each with 100 MiB at the most.
const MAX_REVIEWS: usize = 2;
/// The time for a body, which the API server sends at once. Behind 127 slow bodies, [`MAX_BODIES`] at a
/// time, it waits for less than 3 s: its review still ends in the 5 s of the webhook's configuration.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// Reviews of objects.
#[derive(Clone)]
struct Reviews {
    settings: Arc<Settings>,
    by_outcome: Family<Label, Counter>,
    bodies: Arc<Semaphore>,
    at_once: Arc<Semaphore>,
}

/// Returns the routes of the webhook's port, and registers their metric.
pub(super) fn routes(settings: Settings, registry: &mut Registry) -> Router {
    let by_outcome = counters_by("outcome", Outcome::ALL.map(Outcome::name));
    let help = "Reviewed objects by outcome (allowed, patched, rejected, malformed)";
    registry.register("reviews", help, by_outcome.clone());
    Router::new()
        .route(PATH, post(review_in_turn))
        .with_state(Reviews {
            settings: Arc::new(settings),
            by_outcome,
            bodies: Arc::new(Semaphore::new(MAX_BODIES)),
            at_once: Arc::new(Semaphore::new(MAX_REVIEWS)),
        })
}

/// Reads the body, and reviews it when its turn has come: slow peers hold up no reviews.
async fn review_in_turn(
    State(reviews): State<Reviews>,
    Extension(activity): Extension<Activity>,
    request: Request,
) -> Result<Response, StatusCode> {
    if request.body().size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    // Take the permit before the body is read, and hold it until the review ends: it bounds the memory.
    let body_permit = Arc::clone(&reviews.bodies).acquire_owned().await;
    let body = to_bytes(request.into_body(), MAX_BODY_BYTES);
    let body = timeout(BODY_TIMEOUT, body)
        .await
        .map_err(|_| StatusCode::REQUEST_TIMEOUT)?
        .map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    activity.serves();
    let review_permit = Arc::clone(&reviews.at_once).acquire_owned().await;
    // A large object takes milliseconds, which other connections need not wait for. The review goes
    // on when its client has left, and keeps its permits until its end.
    tokio::task::spawn_blocking(move || {
        let _permits = (body_permit, review_permit);
        reviews.respond(&body)
    })
    .await
    .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

impl Reviews {
    fn respond(&self, body: &[u8]) -> Response {
        let (outcome, response) = match review(body, &self.settings) {
            Ok((outcome, response)) => {
                if outcome == Outcome::Rejected {
                    let reason = text(&response, "/response/status/message");
                    info!(reason, "object rejected");
                }
                (outcome, Json(response).into_response())
            }
            Err(error) => {
                warn!(error, "request rejected");
                let response = (StatusCode::BAD_REQUEST, format!("{error}\n"));
                (Outcome::Malformed, response.into_response())
            }
        };
        self.by_outcome
            .get_or_create(&[("outcome", outcome.name())])
            .inc();
        response
    }
}
