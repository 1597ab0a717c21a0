//! A fetch before the next tick, for requests whose token names a key that is not known here.
//!
//! Anybody can write such a token. So there is one fetch for all who wait, with a pause before the
//! next; each waits for a bounded time. Requests with known keys never come here.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// From one attempt to the next, however it ended.
const COOL_DOWN: Duration = Duration::from_secs(10);
/// How long a request waits: a healthy auth server answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Joins the requests, which wait, with the refresh, which fetches.
#[derive(Debug, Default)]
pub(crate) struct EarlyFetch {
    /// When the last one was asked for. Held while deciding only.
    last_attempt: Mutex<Option<Instant>>,
    asked_for: Notify,
    under_way: watch::Sender<bool>,
}

impl EarlyFetch {
    /// Waits for the fetch that is under way or that may begin at `now`; returns at once when none
    /// may. Whether newer keys came is seen by looking at them.
    pub(crate) async fn wait(&self, now: Instant) {
        if self.begin_or_join(now) {
            let mut under_way = self.under_way.subscribe();
            // When time is up the request is judged by the keys that there are.
            let _ = tokio::time::timeout(PATIENCE, under_way.wait_for(|it_is| !it_is)).await;
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
        self.asked_for.notify_one();
        true
    }

    /// Waits until a request asks. Only the refresh calls it.
    pub(crate) async fn asked_for(&self) {
        self.asked_for.notified().await;
    }

    /// The fetch is over, and what it brought is installed.
    pub(crate) fn ended(&self) {
        self.under_way.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn there_is_one_fetch_at_a_time_and_a_pause_after_it_began() {
        let early = EarlyFetch::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(early.begin_or_join(at(0)), "begins");
        assert!(early.begin_or_join(at(1)), "joins");
        assert!(early.begin_or_join(at(60)), "joins, however long it takes");
        early.ended();
        for (seconds, begins) in [(1, false), (9, false), (10, true)] {
            assert_eq!(early.begin_or_join(at(seconds)), begins, "{seconds}");
        }
    }

    #[tokio::test]
    async fn everybody_who_waits_is_woken_by_the_one_fetch() {
        let early = Arc::new(EarlyFetch::default());
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let early = Arc::clone(&early);
                tokio::spawn(async move { early.wait(Instant::now()).await })
            })
            .collect();
        early.asked_for().await;
        early.ended();
        for waiting in waiting {
            assert!(waiting.await.is_ok());
        }
        early.wait(Instant::now()).await;
        let again = tokio::time::timeout(Duration::ZERO, early.asked_for()).await;
        assert!(again.is_err(), "nobody asked twice");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_two_seconds() {
        let early = EarlyFetch::default();
        let start = tokio::time::Instant::now();
        early.wait(Instant::now()).await;
        assert_eq!(start.elapsed().as_secs(), PATIENCE.as_secs());
    }
}
