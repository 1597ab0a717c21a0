//! The requests of the last hour, minute by minute: the counters are polled once a minute, which
//! costs requests nothing.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use runtime::metrics::histogram::HistogramSnapshot;

use crate::telemetry::metrics::Metrics;
use crate::telemetry::outcome::{StatusClass, Totals};

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
    /// Counters at the start of each minute in `over`, and of the current one.
    figures: VecDeque<Figures>,
    /// The counters at the start of the current minute.
    before: Totals,
    began: SystemTime,
}

/// Counts since the start of the process, at one moment.
#[derive(Debug, Clone)]
struct Figures {
    responses: [u64; StatusClass::ALL.len()],
    durations: HistogramSnapshot,
}

impl Figures {
    fn of(metrics: &Metrics) -> Self {
        Self {
            responses: metrics.responses(),
            durations: metrics.durations(),
        }
    }
}

/// Responses of the last hour.
#[derive(Debug, Clone)]
pub(crate) struct Responses {
    /// Their number for each class.
    pub(crate) by_class: [(StatusClass, u64); StatusClass::ALL.len()],
    /// From the head of each request to the end of its response.
    pub(crate) durations: HistogramSnapshot,
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
            figures: VecDeque::from([Figures::of(&metrics)]),
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
            state.figures.pop_front();
        }
        state.over.push_back(present);
        state.figures.push_back(Figures::of(&self.metrics));
        state.before = self.metrics.totals();
        state.began = now;
    }

    /// Returns the responses of these minutes.
    pub(crate) fn responses(&self) -> Responses {
        let now = Figures::of(&self.metrics);
        let state = self.state.lock();
        let before = state.figures.front().unwrap_or(&now);
        let count = |class: StatusClass| {
            let at = |figures: &Figures| figures.responses.get(class as usize).copied();
            let counts = at(&now).zip(at(before));
            counts.map_or(0, |(now, before)| now.saturating_sub(before))
        };
        Responses {
            by_class: StatusClass::ALL.map(|class| (class, count(class))),
            durations: now.durations.since(&before.durations),
        }
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
        let (metrics, _) = Metrics::new(&TokenCacheCounters::default());
        let at = |minute: u32| SystemTime::UNIX_EPOCH + MINUTE * minute;
        let hour = LastHour::new(metrics.clone(), at(0));
        for minute in 0..100 {
            for _ in 0..minute {
                let completion = Completion {
                    outcome: Outcome::Verified,
                    status: Some(200),
                    duration: Some(Duration::from_millis(1)),
                };
                metrics.request_ended(&completion, None);
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
        let responses = hour.responses();
        // The minutes 41 to 99, and the current one.
        let of_minutes = (41..100).sum::<u64>();
        assert_eq!(responses.by_class[2], (StatusClass::Success, of_minutes));
        let median = responses.durations.quantile(0.5);
        assert_eq!(median, Some(Duration::from_micros(2500)));
    }
}
