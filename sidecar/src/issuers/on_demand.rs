//! A fetch before the next tick, for requests whose token names an unknown key.
//!
//! Any client can write such a token. So all waiting requests share one fetch, the fetches are
//! counted, each request waits for a bounded time, and a client that names many keys waits for none.
//! Requests with known keys never come here.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use postern_token::sources::bearer::Bearer;
use postern_transport::net::shares::Holder;
use smallvec::SmallVec;
use tokio::sync::{Notify, watch};

/// Time after which one more fetch may begin, and for which a client is known by the keys that it named.
const PAUSE: Duration = Duration::from_secs(10);
/// Fetches that may follow each other without a pause.
const FETCHES: u32 = 4;
/// Unknown keys for which a client may wait: an issuer has fewer new ones at a time.
const KEYS_OF_A_CLIENT: usize = 3;
/// Max number of clients that are known by the keys they named; the one that was quiet longest goes first.
const MAX_CLIENTS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
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

#[derive(Debug)]
struct Past {
    /// The time from which on all [`FETCHES`] may begin again.
    full_at: Option<Instant>,
    /// Hashes of headers that name keys which a fetch did not bring. They are absent for a while
    /// after each fetch, because a 503 would hold the clients of a revoked key forever.
    absent: VecDeque<u64>,
    /// The last fetch that succeeded, on demand or not.
    fetched_at: Option<Instant>,
    /// The first unknown keys that each client has named lately.
    named: LruCache<Holder, SmallVec<[(u64, Instant); KEYS_OF_A_CLIENT]>, RandomState>,
}

impl Default for Past {
    fn default() -> Self {
        Self {
            full_at: None,
            absent: VecDeque::new(),
            fetched_at: None,
            named: LruCache::with_hasher(MAX_CLIENTS, RandomState::new()),
        }
    }
}

impl Past {
    /// Notes that `client` names this key, and returns the number of others that it named just before.
    fn note(&mut self, client: Holder, key: u64, now: Instant) -> usize {
        let named = self.named.get_or_insert_mut(client, SmallVec::new);
        // The key itself is noted anew below, so it does not count among the others.
        named.retain(|(other, at)| *other != key && now.saturating_duration_since(*at) < PAUSE);
        let others = named.len();
        if others < KEYS_OF_A_CLIENT {
            named.push((key, now));
        } else {
            // A further key is not stored, but renews the stored ones: the client stays known by them.
            for (_, at) in named {
                *at = now;
            }
        }
        others
    }

    /// Takes a fetch, if `reserved` fetches are left then.
    fn take_fetch(&mut self, reserved: u32, now: Instant) -> bool {
        // A token bucket as one time: each fetch moves it by a pause, up to `FETCHES` of them.
        let full_at = self.full_at.unwrap_or(now).max(now);
        if full_at.saturating_duration_since(now) > PAUSE * (FETCHES - 1 - reserved) {
            return false;
        }
        self.full_at = Some(full_at + PAUSE);
        true
    }

    /// Returns true for a key that the last fetch did not bring just now.
    fn lacks(&self, key: u64, now: Instant) -> bool {
        match self.fetched_at {
            Some(at) if now.saturating_duration_since(at) < PAUSE => self.absent.contains(&key),
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FetchState {
    #[default]
    Failed,
    UnderWay,
    Succeeded,
}

/// The way to decide about a token of an unknown key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Wait for a fetch that begins.
    Begin,
    /// Wait for the fetch that is under way.
    Join,
    /// The present keys decide.
    Decide,
    /// Reject for now: no fetch may begin.
    ComeAgain,
}

/// The next step for a token whose key is still unknown after a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The present keys decide.
    Decide,
    /// A later fetch may still bring the key.
    ComeAgain,
    /// The fetch had begun before, so that it may lack a key that was published since.
    WaitAgain,
}

impl OnDemandFetch {
    /// Waits for the current fetch, or for one that may begin at `now`.
    pub(crate) async fn wait(&self, token: Bearer<'_>, client: Holder, now: Instant) -> Waited {
        let key = self.named_key(token);
        let mut state = self.state.subscribe();
        let joins = match self.turn(key, client, now) {
            Turn::Decide => return Waited::Decide,
            Turn::ComeAgain => return Waited::ComeAgain,
            Turn::Join => true,
            Turn::Begin => false,
        };
        let end = state.wait_for(|state| *state != FetchState::UnderWay);
        // The state is released before `past` is locked: `turn` takes the two in the other order.
        let has_fetched = match tokio::time::timeout(REQUEST_TIMEOUT, end).await {
            Ok(Ok(state)) => *state == FetchState::Succeeded,
            _ => false,
        };
        // A fetch that was under way may have begun before the key was published.
        if joins && has_fetched {
            return Waited::WaitAgain;
        }
        let past = &mut self.past.lock();
        // If the fetch has brought the key, no request for it comes here again, and the entry does no harm.
        if has_fetched && !past.absent.contains(&key) {
            past.absent.truncate(MAX_ABSENT - 1);
            past.absent.push_front(key);
        }
        if has_fetched || past.lacks(key, now) {
            Waited::Decide
        } else {
            Waited::ComeAgain
        }
    }

    /// Returns true for a token of a key that the last fetch did not bring just now.
    pub(super) fn lacks(&self, token: Bearer<'_>, now: Instant) -> bool {
        self.past.lock().lacks(self.named_key(token), now)
    }

    /// Returns the time until a fetch may begin; `None` if it may now.
    pub(crate) fn until_next(&self, now: Instant) -> Option<Duration> {
        let full_at = self.past.lock().full_at?;
        let wait = full_at.saturating_duration_since(now + PAUSE * (FETCHES - 1));
        (!wait.is_zero()).then_some(wait)
    }

    fn turn(&self, key: u64, client: Holder, now: Instant) -> Turn {
        // Held to the end: two requests must not both find that no fetch is under way.
        let mut past = self.past.lock();
        let others = past.note(client, key, now);
        let is_under_way = *self.state.borrow() == FetchState::UnderWay;
        // A key that the last fetch did not bring leaves the fetches to others.
        if !is_under_way && past.lacks(key, now) {
            return Turn::Decide;
        }
        // A client that invents keys leaves a fetch to the first token of a new one. It may also be
        // many behind one address: for their further keys a fetch begins while there are plenty, so
        // that a new key among them is here at a later try.
        let reserved = match others {
            0 => 0,
            1..KEYS_OF_A_CLIENT => 1,
            _ => 2,
        };
        let begins = !is_under_way && past.take_fetch(reserved, now);
        if begins {
            // Before the task is woken, which may end the fetch at once.
            self.state.send_replace(FetchState::UnderWay);
            self.requested.notify_one();
        }
        match (is_under_way, begins) {
            // The fetch may begin for the sake of later tries; this client waits for none.
            _ if others == KEYS_OF_A_CLIENT => Turn::Decide,
            (true, _) => Turn::Join,
            (false, true) => Turn::Begin,
            (false, false) => Turn::ComeAgain,
        }
    }

    /// Identifies the key by the header that names it: all tokens of one key have the same.
    fn named_key(&self, token: Bearer<'_>) -> u64 {
        self.hashes.hash_one(token.as_str().split('.').next())
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
        self.state.send_replace(if succeeded {
            FetchState::Succeeded
        } else {
            FetchState::Failed
        });
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use super::*;

    fn token(text: &str) -> Bearer<'_> {
        Bearer::new(text).unwrap()
    }

    fn client(number: u32) -> Holder {
        Holder::for_address(Some(Ipv4Addr::from(number).into()))
    }

    #[test]
    fn four_fetches_in_a_row_and_then_one_every_ten_seconds() {
        let on_demand = OnDemandFetch::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut clients = (0..).map(client);
        let mut turn = |key, at| on_demand.turn(key, clients.next().unwrap(), at);
        assert_eq!(turn(1, at(0)), Turn::Begin, "begins");
        assert_eq!(turn(2, at(60)), Turn::Join, "however late");
        for (seconds, expected, wait) in [
            (0, Turn::Begin, None),
            (0, Turn::Begin, None),
            (0, Turn::Begin, Some(10)),
            (1, Turn::ComeAgain, Some(9)),
            (9, Turn::ComeAgain, Some(1)),
            (10, Turn::Begin, Some(10)),
            (19, Turn::ComeAgain, Some(1)),
            (100, Turn::Begin, None),
        ] {
            on_demand.ended(true);
            assert_eq!(turn(1, at(seconds)), expected, "{seconds}");
            let until_next = on_demand.until_next(at(seconds));
            assert_eq!(until_next, wait.map(Duration::from_secs), "{seconds}");
        }
    }

    #[test]
    fn a_client_that_invents_keys_leaves_a_fetch_to_others() {
        let on_demand = OnDemandFetch::default();
        let start = Instant::now();
        let mut begun = 0;
        for seconds in 0..70 {
            let now = start + Duration::from_secs(seconds);
            for number in 0..20 {
                let key = 1000 + seconds * 20 + number;
                let turn = on_demand.turn(key, client(1), now);
                let expected = match key {
                    1000..=1002 => Turn::Begin,
                    _ => Turn::Decide,
                };
                assert_eq!(turn, expected, "{key}");
                begun += usize::from(*on_demand.state.borrow() == FetchState::UnderWay);
                on_demand.ended(true);
            }
            // As a client of a new key finds it, each second.
            let mut others = on_demand.past.lock();
            let full_at = others.full_at;
            assert!(others.take_fetch(0, now), "after {seconds} s");
            others.full_at = full_at;
        }
        assert!((4..=3 + 7).contains(&begun), "{begun} fetches in 70 s");
        let later = start + Duration::from_secs(69) + PAUSE;
        assert_eq!(
            on_demand.turn(9, client(1), later),
            Turn::Begin,
            "forgotten"
        );
    }

    #[test]
    fn a_client_is_known_by_its_first_three_keys_of_ten_seconds() {
        let mut past = Past::default();
        let start = Instant::now();
        for (seconds, key, others) in [
            (0, 1, 0),
            (0, 1, 0),
            (1, 2, 1),
            (2, 1, 1),
            (3, 3, 2),
            (4, 4, 3),
            (5, 4, 3),
            (5, 3, 2),
            (14, 5, 3),
            (23, 5, 3),
            (33, 6, 0),
        ] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(past.note(client(1), key, now), others, "{seconds} s: {key}");
        }
        assert_eq!(past.note(client(2), 8, start), 0, "another one");
        for number in 0..10_000 {
            past.note(client(number), 9, start);
        }
        assert_eq!(past.named.len(), MAX_CLIENTS.get());
    }

    #[tokio::test]
    async fn an_absent_key_leaves_the_fetches_to_others() {
        let on_demand = OnDemandFetch::default();
        let now = Instant::now();
        let (old, new) = (token("old.b.c"), token("new.b.c"));
        let lacks = |token, now| on_demand.past.lock().lacks(on_demand.named_key(token), now);
        let waits = async |token: Bearer<'_>, number, now| {
            let (waited, ()) = tokio::join!(on_demand.wait(token, client(number), now), async {
                on_demand.ended(true);
            });
            waited
        };
        on_demand.fetched(now);
        assert!(!lacks(old, now), "nothing is known");
        assert_eq!(waits(old, 1, now).await, Waited::Decide);
        assert!(lacks(token("old.d.e"), now), "of one key");
        assert!(!lacks(new, now));
        let turn = |token, number, now| {
            let turn = on_demand.turn(on_demand.named_key(token), client(number), now);
            on_demand.ended(true);
            turn
        };
        assert_eq!(turn(old, 2, now), Turn::Decide);
        assert_eq!(turn(new, 3, now), Turn::Begin);
        let later = now + PAUSE;
        assert!(!lacks(old, later), "a fetch could bring it");
        assert_eq!(turn(old, 4, later), Turn::Begin);
        on_demand.fetched(later);
        assert!(lacks(old, later), "by the fetch of any request");
        for number in 0..MAX_ABSENT {
            let now = later + PAUSE * u32::try_from(number).unwrap();
            let other = format!("{number}.b.c");
            waits(token(&other), 5, now).await;
        }
        assert!(!lacks(old, later), "forgotten");
    }

    #[tokio::test]
    async fn one_fetch_wakes_all_waiting_requests() {
        for succeeded in [true, false] {
            let on_demand = Arc::new(OnDemandFetch::default());
            let waiting: Vec<_> = (0..10)
                .map(|_| {
                    let on_demand = Arc::clone(&on_demand);
                    let now = Instant::now();
                    tokio::spawn(
                        async move { on_demand.wait(token("a.b.c"), client(1), now).await },
                    )
                })
                .collect();
            on_demand.requested().await;
            tokio::task::yield_now().await;
            on_demand.ended(succeeded);
            for (number, waiting) in waiting.into_iter().enumerate() {
                let expected = match (succeeded, number) {
                    (false, _) => Waited::ComeAgain,
                    (true, 0) => Waited::Decide,
                    // They have joined.
                    (true, _) => Waited::WaitAgain,
                };
                assert_eq!(waiting.await.unwrap(), expected, "{number}");
            }
            let again = tokio::time::timeout(Duration::ZERO, on_demand.requested()).await;
            assert!(again.is_err(), "no request came twice");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_longer_than_two_seconds() {
        let on_demand = OnDemandFetch::default();
        let start = tokio::time::Instant::now();
        let waited = on_demand.wait(token("a.b.c"), client(1), Instant::now());
        assert_eq!(waited.await, Waited::ComeAgain);
        assert_eq!(start.elapsed().as_secs(), REQUEST_TIMEOUT.as_secs());
    }
}
