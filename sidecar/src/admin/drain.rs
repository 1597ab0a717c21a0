//! `POST /drain`: begins the drain and says how it stands.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{StatusCode, header};
use runtime::health::Condition;
use serde::{Deserialize, Serialize};

use crate::background::Draining;
use crate::telemetry::metrics::Metrics;

pub(crate) const PATH: &str = "/drain";

/// What the admin port needs to begin the drain and to tell how it stands.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    pub(crate) draining: Draining,
    pub(crate) serving: Condition,
    pub(crate) metrics: Metrics,
    pub(crate) lame_duck: Duration,
}

/// How the drain stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The lame-duck time is over and nothing is in flight.
    pub(crate) drained: bool,
    pub(crate) in_flight: i64,
}

impl Drain {
    /// `POST /drain`, which may be repeated. Changes state: the admin port answers loopback peers only.
    pub(crate) fn routes(self) -> Router {
        Router::new().route(PATH, post(begin)).with_state(self)
    }

    fn begin(&self) -> Progress {
        if !self.draining.is_on() {
            tracing::info!("draining by command");
            self.serving.set_not_ready("draining");
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

#[cfg(test)]
mod tests {
    use runtime::health::Health;

    use super::*;
    use crate::telemetry::metrics::TokenCacheCounters;

    fn drain(lame_duck: Duration) -> (Drain, Health) {
        let health = Health::new();
        health.set_started();
        let serving = health.condition("serving", "starting");
        serving.set_ready();
        let drain = Drain {
            draining: Draining::default(),
            serving,
            metrics: Metrics::new(TokenCacheCounters::default()).0,
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
}
