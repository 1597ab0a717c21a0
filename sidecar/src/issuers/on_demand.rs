//! A fetch before the next tick, for requests whose token names an unknown key.
//!
//! Any client can write such a token. So all waiting requests share one fetch, with a pause before
//! the next; each waits for a bounded time. Requests with known keys never come here.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// Pause from one attempt to the next, also after a failure.
const COOL_DOWN: Duration = Duration::from_secs(10);
/// Longest wait of a request; a healthy auth server responds in milliseconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The link between the requests, which wait, and the refresh, which fetches.
#[derive(Debug, Default)]
pub(crate) struct OnDemandRefresh {
    /// The time of the last attempt. Locked only while deciding.
    last_attempt: Mutex<Option<Instant>>,
    requested: Notify,
    under_way: watch::Sender<bool>,
}

impl OnDemandRefresh {
    /// Waits for the current fetch, or for one that may begin at `now`; returns at once where none
    /// may. The caller checks for newer keys.
    pub(crate) async fn wait(&self, now: Instant) {
        if self.begin_or_join(now) {
            let mut under_way = self.under_way.subscribe();
            // After the timeout the present keys are used.
            let _ = tokio::time::timeout(REQUEST_TIMEOUT, under_way.wait_for(|it_is| !it_is)).await;
        }
    }

    fn begin_or_join(&self, now: Instant) -> bool {
        let mut last = self.last_attempt.lock();
        if *self.under_way.borrow() {
            return true;
        }
        if last.is_some_and(|last| now.saturating_duration_since(last) < COOL_DOWN) {
            return false;
        }
        *last = Some(now);
        self.under_way.send_replace(true);
        self.requested.notify_one();
        true
    }

    /// Waits for a request. Only the refresh calls it.
    pub(crate) async fn requested(&self) {
        self.requested.notified().await;
    }

    /// Ends the fetch; its keys are installed.
    pub(crate) fn ended(&self) {
        self.under_way.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn one_fetch_at_a_time_with_a_pause_after_its_start() {
        let on_demand = OnDemandRefresh::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(on_demand.begin_or_join(at(0)), "begins");
        assert!(on_demand.begin_or_join(at(1)), "joins");
        assert!(
            on_demand.begin_or_join(at(60)),
            "joins, however long it takes"
        );
        on_demand.ended();
        for (seconds, begins) in [(1, false), (9, false), (10, true)] {
            assert_eq!(on_demand.begin_or_join(at(seconds)), begins, "{seconds}");
        }
    }

    #[tokio::test]
    async fn one_fetch_wakes_all_waiting_requests() {
        let on_demand = Arc::new(OnDemandRefresh::default());
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let on_demand = Arc::clone(&on_demand);
                tokio::spawn(async move { on_demand.wait(Instant::now()).await })
            })
            .collect();
        on_demand.requested().await;
        on_demand.ended();
        for waiting in waiting {
            assert!(waiting.await.is_ok());
        }
        on_demand.wait(Instant::now()).await;
        let again = tokio::time::timeout(Duration::ZERO, on_demand.requested()).await;
        assert!(again.is_err(), "no request came twice");
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_longer_than_two_seconds() {
        let on_demand = OnDemandRefresh::default();
        let start = tokio::time::Instant::now();
        on_demand.wait(Instant::now()).await;
        assert_eq!(start.elapsed().as_secs(), REQUEST_TIMEOUT.as_secs());
    }
}
