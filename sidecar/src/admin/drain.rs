//! `sidecar drain`: the stop's first half by command, for an orchestrator's preStop hook.
//!
//! Kubernetes runs the hook before it signals anybody, and signals a native sidecar last. The hook
//! holds that up until callers have noticed that they have to go elsewhere and nothing is in flight.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{StatusCode, header};
use runtime::admin_client::{self, Answer};
use runtime::exit::Failure;
use runtime::health::Condition;
use serde::{Deserialize, Serialize};

use crate::commands::wait;
use crate::server::shutdown::{Draining, GracefulStop};
use crate::telemetry::metrics::Metrics;

const PATH: &str = "/drain";
const ONE_ANSWER: Duration = Duration::from_secs(2);

/// What the admin port needs to begin the drain and to tell how it stands.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    draining: Draining,
    serving: Condition,
    metrics: Metrics,
    lame_duck: Duration,
}

/// How the drain stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    /// The lame-duck time is over and nothing is in flight.
    drained: bool,
    in_flight: i64,
}

impl Drain {
    /// The same as `stop` begins with.
    pub(crate) fn by_command(stop: &GracefulStop) -> Self {
        Self {
            draining: stop.draining.clone(),
            serving: stop.serving.clone(),
            metrics: stop.metrics.clone(),
            lame_duck: stop.times.lame_duck,
        }
    }

    /// `POST /drain`, which may be repeated. Changes state: the admin port answers loopback peers only.
    pub(crate) fn routes(self) -> Router {
        Router::new().route(PATH, post(begin)).with_state(self)
    }

    fn begin(&self) -> Progress {
        if !self.draining.is_on() {
            tracing::info!("draining by command");
            self.serving.unmet("draining");
        }
        let in_flight = self.metrics.in_flight();
        Progress {
            drained: self.draining.begin().elapsed() >= self.lame_duck && in_flight == 0,
            in_flight,
        }
    }
}

async fn begin(State(drain): State<Drain>) -> Response {
    match serde_json::to_string(&drain.begin()) {
        Ok(progress) => ([(header::CONTENT_TYPE, "application/json")], progress).into_response(),
        Err(error) => {
            tracing::error!(%error, "admin port: the drain cannot be reported");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Begins the drain and waits for its end.
///
/// # Errors
/// When `timeout` is over before, or no sidecar answers.
pub(crate) fn until_drained(admin: SocketAddr, timeout: Duration) -> Result<(), Failure> {
    wait::asking(timeout, || {
        let progress = progress(&admin_client::ask(admin, "POST", PATH, ONE_ANSWER)?)?;
        if progress.drained {
            return Ok(wait::Answer::Done);
        }
        Ok(wait::Answer::NotYet(Failure::Unavailable(format!(
            "not drained after {} s: {} requests in flight",
            timeout.as_secs(),
            progress.in_flight
        ))))
    })
}

fn progress(answer: &Answer) -> Result<Progress, Failure> {
    serde_json::from_str(&answer.body).map_err(|_| {
        Failure::Unavailable(format!(
            "not the admin port of a sidecar: it answered {:?}",
            answer.status_line
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use runtime::health::Health;

    use super::*;

    fn drain(lame_duck: Duration) -> (Drain, Health) {
        let health = Health::new();
        health.set_started();
        let serving = health.condition("serving", "starting");
        serving.met();
        let drain = Drain {
            draining: Draining::default(),
            serving,
            metrics: Metrics::new(Arc::default()).0,
            lame_duck,
        };
        (drain, health)
    }

    #[test]
    fn it_is_drained_when_nothing_is_in_flight() {
        let (drain, health) = drain(Duration::ZERO);
        assert!(health.is_ready());
        let request = drain.metrics.request_began();
        let in_flight = |drained, in_flight| Progress { drained, in_flight };
        assert_eq!(drain.begin(), in_flight(false, 1));
        assert!(!health.is_ready() && drain.draining.is_on());
        drop(request);
        assert_eq!(drain.begin(), in_flight(true, 0));
    }

    #[test]
    fn it_is_not_drained_before_callers_can_have_noticed() {
        let (drain, _) = drain(Duration::from_secs(3600));
        assert!(!drain.begin().drained);
    }

    #[test]
    fn another_program_is_told_apart() {
        let answer = Answer {
            status_line: "HTTP/1.1 404 Not Found".to_owned(),
            body: String::new(),
        };
        assert!(progress(&answer).is_err_and(|failure| failure.code() == 69));
    }
}
