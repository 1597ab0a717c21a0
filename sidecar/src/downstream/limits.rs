//! How many clients may be connected, and how many requests under way, at once.
//!
//! Each connection of a client takes a file descriptor, and each request may take one towards the
//! service: over HTTP/2 one connection brings many requests.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// More than one sidecar has to do with; each connection takes some 30 kB after its first request. A
/// client that does not read takes up to 0.25 MiB for its connection and 0.75 MiB for each request on
/// its way, 1.25 MiB from a service that speaks HTTP/2.
const MAX_BY_DEFAULT: usize = 16_384;
/// Who has too many connections has them again and again.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Counts what there may only be so many of, and remembers when it last complained.
#[derive(Debug)]
pub(crate) struct Limit {
    /// What the log calls it.
    flag: &'static str,
    max: usize,
    free: Arc<Semaphore>,
    warned: Mutex<Option<Instant>>,
}

impl Limit {
    /// What the `flag` asks for, or what so many file descriptors are enough for: half of them are for
    /// clients, half for requests.
    pub(crate) fn new(flag: &'static str, asked: Option<usize>, descriptors: usize) -> Self {
        let enough_for = descriptors / 2;
        let max = asked.unwrap_or(enough_for.min(MAX_BY_DEFAULT));
        if max > enough_for {
            tracing::warn!(
                descriptors,
                "{flag} {max}: the file descriptors are enough for {enough_for}"
            );
        }
        Self {
            flag,
            max,
            free: Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))),
            warned: Mutex::default(),
        }
    }

    /// A place, until it is dropped; `None` where all are taken.
    pub(crate) fn take(&self, now: Instant) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok();
        if permit.is_none() && self.warning_is_due(now) {
            tracing::warn!("{} {}: no place for more", self.flag, self.max);
        }
        permit
    }

    fn warning_is_due(&self, now: Instant) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let due = warned.is_none_or(|last| now.duration_since(last) >= WARNING_INTERVAL);
        if due {
            *warned = Some(now);
        }
        due
    }
}

/// The requests on their way to the service. Those without a token have half of the places: whoever has
/// none cannot take all, however slowly he sends or reads.
#[derive(Debug)]
pub(crate) struct InFlight {
    all: Limit,
    without_token: Limit,
}

/// Among those that may be on their way.
#[derive(Debug)]
pub(crate) struct InFlightPermit {
    _of_all: OwnedSemaphorePermit,
    _without_token: Option<OwnedSemaphorePermit>,
}

impl InFlight {
    pub(crate) fn new(all: Limit) -> Self {
        let half = (all.max / 2).max(1);
        Self {
            without_token: Limit::new(
                "without a token: half of --max-in-flight,",
                Some(half),
                usize::MAX,
            ),
            all,
        }
    }

    /// Completes `work` that is no request to the service. It needs a place only if it has to wait; `None`
    /// where there is none then.
    pub(crate) async fn while_waiting<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut permit = None;
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            if permit.is_none() {
                permit = self.take(false, Instant::now());
            }
            match permit {
                Some(_) => Poll::Pending,
                None => Poll::Ready(None),
            }
        })
        .await
    }

    /// A place, until it is dropped; `None` where all are taken.
    pub(crate) fn take(&self, has_token: bool, now: Instant) -> Option<InFlightPermit> {
        let without_token = if has_token {
            None
        } else {
            Some(self.without_token.take(now)?)
        };
        Some(InFlightPermit {
            _of_all: self.all.take(now)?,
            _without_token: without_token,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_token_gets_half_of_the_places_and_at_least_one() {
        let now = Instant::now();
        for (max, without_token) in [(1, 1), (2, 1), (5, 2), (8, 4)] {
            let in_flight = InFlight::new(Limit::new("--max", Some(max), usize::MAX));
            let strangers: Vec<_> = (0..max)
                .filter_map(|_| in_flight.take(false, now))
                .collect();
            assert_eq!(strangers.len(), without_token);
            let users: Vec<_> = (0..max).filter_map(|_| in_flight.take(true, now)).collect();
            assert_eq!(users.len(), max - without_token);
            assert!(in_flight.take(false, now).is_none());
            drop(strangers);
            assert!(in_flight.take(false, now).is_some());
        }
    }

    #[tokio::test]
    async fn work_takes_a_place_only_while_it_waits() {
        let in_flight = InFlight::new(Limit::new("--max", Some(2), usize::MAX));
        let taken = in_flight.take(false, Instant::now());
        assert_eq!(in_flight.while_waiting(async { 1 }).await, Some(1));
        assert_eq!(
            in_flight.while_waiting(tokio::task::yield_now()).await,
            None
        );
        drop(taken);
        let waiting = in_flight.while_waiting(async {
            tokio::task::yield_now().await;
            assert!(in_flight.take(false, Instant::now()).is_none());
        });
        assert_eq!(waiting.await, Some(()));
        assert!(in_flight.take(false, Instant::now()).is_some());
    }

    #[test]
    fn a_client_counts_twice() {
        for (descriptors, connections) in [(32, 16), (928, 464), (usize::MAX, 16_384)] {
            assert_eq!(Limit::new("--max", None, descriptors).max, connections);
            assert_eq!(Limit::new("--max", Some(1), descriptors).max, 1);
        }
    }

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let limit = Limit::new("--max", Some(1), 1024);
        let now = Instant::now();
        let permit = limit.take(now);
        assert!(permit.is_some() && limit.take(now).is_none());
        drop(permit);
        assert!(limit.take(now).is_some());
    }

    #[test]
    fn one_warning_a_minute_is_enough() {
        let limit = Limit::new("--max", Some(1), 1024);
        let now = Instant::now();
        assert!(limit.warning_is_due(now));
        assert!(!limit.warning_is_due(now + WARNING_INTERVAL / 2));
        assert!(limit.warning_is_due(now + WARNING_INTERVAL));
    }
}
