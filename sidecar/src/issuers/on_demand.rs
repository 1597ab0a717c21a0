//! A fetch before the next tick, for requests whose token names an unknown key.
//!
//! Any client can write such a token. So all waiting requests share one fetch, the fetches are
//! counted, and each request waits for a bounded time. Requests with known keys never come here.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use wire::token::bearer::Bearer;

/// Time that gives back one fetch.
const PAUSE: Duration = Duration::from_secs(10);
/// Fetches that may follow each other without a pause: a client that invents keys leaves the first
/// token of a new one its fetch.
const FETCHES: u32 = 3;
/// Longest wait of a request; a healthy auth server responds in milliseconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Max number of remembered keys that no fetch brought.
const MAX_ABSENT: usize = 64;

/// The link between the requests, which wait, and the issuer's task, which fetches.
#[derive(Debug, Default)]
pub(crate) struct OnDemandFetch {
    /// Locked only while deciding.
    past: Mutex<Past>,
    requested: Notify,
    state: watch::Sender<FetchState>,
    hashes: RandomState,
}

#[derive(Debug, Default)]
struct Past {
    /// The time at which all fetches are given back.
    full_at: Option<Instant>,
    /// Hashes of headers that name keys which a fetch did not bring. They are absent for a while
    /// after each fetch, because a 503 would hold the clients of a revoked key for ever.
    absent: VecDeque<u64>,
    /// The last fetch that succeeded, on demand or not.
    fetched_at: Option<Instant>,
}

impl Past {
    /// Returns true for a key that the last fetch did not bring just now.
    fn lacks(&self, key: u64, now: Instant) -> bool {
        let is_fresh = |at: Instant| now.saturating_duration_since(at) < PAUSE;
        self.fetched_at.is_some_and(is_fresh) && self.absent.contains(&key)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FetchState {
    #[default]
    Failed,
    UnderWay,
    Succeeded,
}

impl OnDemandFetch {
    /// Waits for the current fetch, or for one that may begin at `now`. Returns true if it
    /// succeeded: the present keys are all that there are.
    pub(crate) async fn wait(&self, token: Bearer<'_>, now: Instant) -> bool {
        let mut state = self.state.subscribe();
        if !self.begin_or_join(self.named_key(token), now) {
            return false;
        }
        let ended = state.wait_for(|state| *state != FetchState::UnderWay);
        let ended = tokio::time::timeout(REQUEST_TIMEOUT, ended).await;
        matches!(ended, Ok(Ok(state)) if *state == FetchState::Succeeded)
    }

    /// Returns true if the issuer has no such key, as of this fetch or one just before `now`. Called
    /// for a key that the present ones do not hold.
    pub(crate) fn is_absent(&self, token: Bearer<'_>, was_fetched: bool, now: Instant) -> bool {
        let key = self.named_key(token);
        let past = &mut self.past.lock();
        if was_fetched && !past.absent.contains(&key) {
            past.absent.truncate(MAX_ABSENT - 1);
            past.absent.push_front(key);
        }
        was_fetched || past.lacks(key, now)
    }

    /// Returns the time until a fetch may begin; `None` if it may now.
    pub(crate) fn until_next(&self, now: Instant) -> Option<Duration> {
        let full_at = self.past.lock().full_at?;
        let wait = full_at.saturating_duration_since(now + PAUSE * (FETCHES - 1));
        (!wait.is_zero()).then_some(wait)
    }

    fn begin_or_join(&self, key: u64, now: Instant) -> bool {
        let mut past = self.past.lock();
        if *self.state.borrow() == FetchState::UnderWay {
            return true;
        }
        // It leaves the fetches to others.
        if past.lacks(key, now) {
            return false;
        }
        let full_at = past.full_at.map_or(now, |full_at| full_at.max(now));
        if full_at.saturating_duration_since(now) > PAUSE * (FETCHES - 1) {
            return false;
        }
        past.full_at = Some(full_at + PAUSE);
        self.state.send_replace(FetchState::UnderWay);
        self.requested.notify_one();
        true
    }

    /// Identifies the key by the header that names it: all tokens of one key have the same.
    fn named_key(&self, token: Bearer<'_>) -> u64 {
        let header = token.as_str().split('.').next();
        self.hashes.hash_one(header)
    }

    /// Waits for a request. Only the issuer's task calls it.
    pub(super) async fn requested(&self) {
        self.requested.notified().await;
    }

    /// Records a fetch that succeeded.
    pub(super) fn fetched(&self, now: Instant) {
        self.past.lock().fetched_at = Some(now);
    }

    /// Ends the fetch; its keys are installed.
    pub(super) fn ended(&self, succeeded: bool) {
        self.state.send_replace(match succeeded {
            true => FetchState::Succeeded,
            false => FetchState::Failed,
        });
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::Arc;

    use super::*;

    fn token(text: &str) -> Bearer<'_> {
        Bearer::new(text).unwrap()
    }

    #[test]
    fn three_fetches_in_a_row_and_then_one_every_ten_seconds() {
        let on_demand = OnDemandFetch::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(on_demand.begin_or_join(1, at(0)), "begins");
        assert!(on_demand.begin_or_join(2, at(60)), "joins, however late");
        for (seconds, begins, wait) in [
            (0, true, None),
            (0, true, Some(10)),
            (1, false, Some(9)),
            (9, false, Some(1)),
            (10, true, Some(10)),
            (19, false, Some(1)),
            (100, true, None),
        ] {
            on_demand.ended(true);
            assert_eq!(on_demand.begin_or_join(1, at(seconds)), begins, "{seconds}");
            let until_next = on_demand.until_next(at(seconds));
            assert_eq!(until_next, wait.map(Duration::from_secs), "{seconds}");
        }
    }

    #[test]
    fn an_absent_key_leaves_the_fetches_to_others() {
        let on_demand = OnDemandFetch::default();
        let (old, new, now) = (token("old.b.c"), token("new.b.c"), Instant::now());
        let is_absent = |token, now| on_demand.is_absent(token, false, now);
        let begins = |token, now| {
            let begins = on_demand.begin_or_join(on_demand.named_key(token), now);
            on_demand.ended(true);
            begins
        };
        on_demand.fetched(now);
        assert!(!is_absent(old, now), "nothing is known");
        assert!(on_demand.is_absent(old, true, now));
        assert!(is_absent(token("old.d.e"), now), "of one key");
        assert!(!is_absent(new, now));
        for (token, expected) in [(old, false), (new, true), (new, true), (new, true)] {
            assert_eq!(begins(token, now), expected);
        }
        let later = now + PAUSE;
        assert!(!is_absent(old, later), "a fetch could bring it");
        assert!(begins(old, later));
        on_demand.fetched(later);
        assert!(is_absent(old, later), "by the fetch of any request");
        for number in 0..MAX_ABSENT {
            on_demand.is_absent(token(&format!("{number}.b.c")), true, later);
        }
        assert!(!is_absent(old, later), "forgotten");
    }

    #[tokio::test]
    async fn one_fetch_wakes_all_waiting_requests() {
        for succeeded in [true, false] {
            let on_demand = Arc::new(OnDemandFetch::default());
            let waiting: Vec<_> = (0..10)
                .map(|_| {
                    let on_demand = Arc::clone(&on_demand);
                    let now = Instant::now();
                    tokio::spawn(async move { on_demand.wait(token("a.b.c"), now).await })
                })
                .collect();
            on_demand.requested().await;
            tokio::task::yield_now().await;
            on_demand.ended(succeeded);
            for waiting in waiting {
                assert_eq!(waiting.await.ok(), Some(succeeded));
            }
            let again = tokio::time::timeout(Duration::ZERO, on_demand.requested()).await;
            assert!(again.is_err(), "no request came twice");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_longer_than_two_seconds() {
        let on_demand = OnDemandFetch::default();
        let start = tokio::time::Instant::now();
        assert!(!on_demand.wait(token("a.b.c"), Instant::now()).await);
        assert_eq!(start.elapsed().as_secs(), REQUEST_TIMEOUT.as_secs());
    }
}
