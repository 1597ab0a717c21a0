//! The requests of the last hour, minute by minute: the counters are polled once a minute, which
//! costs requests nothing.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::telemetry::metrics::Metrics;
use crate::telemetry::outcome::Totals;

const MINUTES: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// The finished minutes, and the counters at the start of the current one.
#[derive(Debug)]
pub(crate) struct LastHour {
    metrics: Metrics,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    over: VecDeque<Minute>,
    /// The counters at the start of the current minute.
    before: Totals,
    began: SystemTime,
}

/// One minute, or the past part of the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Minute {
    pub(crate) began: SystemTime,
    pub(crate) requests: Totals,
}

impl LastHour {
    pub(crate) fn new(metrics: Metrics, now: SystemTime) -> Self {
        let state = State {
            over: VecDeque::with_capacity(MINUTES),
            before: metrics.totals(),
            began: now,
        };
        Self {
            metrics,
            state: Mutex::new(state),
        }
    }

    /// Ends a minute every 60 seconds, for as long as it is polled.
    pub(crate) async fn follow(&self) -> Infallible {
        let mut minutes = tokio::time::interval(MINUTE);
        minutes.tick().await;
        loop {
            minutes.tick().await;
            self.end_minute(SystemTime::now());
        }
    }

    fn end_minute(&self, now: SystemTime) {
        let mut state = self.state.lock();
        let present = self.present(&state);
        if state.over.len() == MINUTES - 1 {
            state.over.pop_front();
        }
        state.over.push_back(present);
        state.before = self.metrics.totals();
        state.began = now;
    }

    fn present(&self, state: &State) -> Minute {
        Minute {
            began: state.began,
            requests: self.metrics.totals().since(state.before),
        }
    }

    /// Returns at most sixty, oldest first; the last one is the current one.
    pub(crate) fn minutes(&self) -> Vec<Minute> {
        let state = self.state.lock();
        let present = self.present(&state);
        state.over.iter().copied().chain([present]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::TokenCacheCounters;
    use crate::telemetry::outcome::{Completion, Outcome};

    #[test]
    fn requests_are_counted_by_minute_for_sixty_minutes() {
        let (metrics, _) = Metrics::new(TokenCacheCounters::default());
        let at = |minute: u32| SystemTime::UNIX_EPOCH + MINUTE * minute;
        let hour = LastHour::new(metrics.clone(), at(0));
        for minute in 0..100 {
            for _ in 0..minute {
                metrics.request_ended(&Completion {
                    outcome: Outcome::Verified,
                    status: Some(200),
                    duration: None,
                });
            }
            let last = hour.minutes().pop();
            let requests = Totals {
                verified: u64::from(minute),
                ..Totals::default()
            };
            let began = at(minute);
            assert_eq!(last, Some(Minute { began, requests }));
            hour.end_minute(at(minute + 1));
        }
        let minutes = hour.minutes();
        assert_eq!(minutes.len(), 60);
        assert_eq!(minutes.first().map(|minute| minute.began), Some(at(41)));
    }
}
