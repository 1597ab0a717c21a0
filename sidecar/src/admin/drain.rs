//! `POST /drain`: starts the drain and reports its progress.

use std::time::Duration;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use postern_transport::admin::health::Condition;
use postern_transport::drain::DrainTrigger;
use serde::{Deserialize, Serialize};

use crate::telemetry::metrics::Metrics;

pub(crate) const PATH: &str = "/drain";

/// The state of the drain route.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    pub(crate) drain: DrainTrigger,
    pub(crate) serving: Condition,
    pub(crate) metrics: Metrics,
    pub(crate) lame_duck: Duration,
}

/// The progress of the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// True after the lame-duck time without requests in flight.
    pub(crate) drained: bool,
    pub(crate) in_flight: i64,
}

impl Drain {
    /// Returns `POST /drain`, which may be repeated. The route changes state, so the admin port serves it to
    /// loopback peers only.
    pub(crate) fn routes(self) -> Router {
        Router::new().route(PATH, post(begin)).with_state(self)
    }

    fn begin(&self) -> Progress {
        if !self.drain.has_begun() {
            tracing::info!("draining by command");
            self.serving.set_not_ready("draining");
        }
        // Repeated requests only report: `begin` below keeps the time of the first one.
        let in_flight = self.metrics.requests_in_flight.get();
        Progress {
            drained: self.drain.begin().elapsed() >= self.lame_duck && in_flight == 0,
            in_flight,
        }
    }
}

async fn begin(State(drain): State<Drain>) -> Json<Progress> {
    Json(drain.begin())
}

#[cfg(test)]
mod tests {
    use postern_transport::admin::health::Health;

    use super::*;
    use crate::telemetry::metrics::TokenCacheCounters;

    #[test]
    fn the_lame_duck_time_comes_before_drained() {
        let health = Health::new();
        let drain = Drain {
            drain: DrainTrigger::default(),
            serving: health.condition("serving", "starting"),
            metrics: Metrics::new(&TokenCacheCounters::default()).0,
            lame_duck: Duration::from_secs(3600),
        };
        assert!(!drain.begin().drained);
    }
}
