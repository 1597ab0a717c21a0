//! Limits of open connections and of requests in flight.
//!
//! A client's connection takes a file descriptor, and so may each of its requests, towards the
//! service: one HTTP/2 connection carries many requests.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use parking_lot::Mutex;
use runtime::logs::once_a_minute::OnceAMinute;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// An idle connection takes some 30 kB. A client that does not read takes up to 0.25 MiB for its
/// connection and 0.75 MiB for each request in flight, 1.25 MiB if the service speaks HTTP/2.
const MAX_BY_DEFAULT: usize = 16_384;

/// Bounded number of permits, with a rate-limited warning.
#[derive(Debug)]
pub(crate) struct Limit {
    /// Name in log lines.
    flag: &'static str,
    max: usize,
    free: Arc<Semaphore>,
    /// A full limit rejects many clients in a row.
    warned: Mutex<OnceAMinute>,
}

impl Limit {
    /// Creates `configured` permits, by default one for every two file descriptors: half of them
    /// are for clients, half for requests.
    pub(crate) fn new(flag: &'static str, configured: Option<usize>, descriptors: usize) -> Self {
        let enough_for = descriptors / 2;
        let max = configured.unwrap_or(enough_for.min(MAX_BY_DEFAULT));
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

    /// Takes a permit; `None` if all are taken.
    pub(crate) fn take(&self, now: Instant) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok();
        if permit.is_none() && self.warned.lock().is_due(now) {
            tracing::warn!("{} {}: max reached", self.flag, self.max);
        }
        permit
    }
}

/// Permits of requests in flight. Requests without a token get at most half of them: slow clients
/// without a token cannot take all.
#[derive(Debug)]
pub(crate) struct InFlight {
    all: Limit,
    without_token: Limit,
}

/// Permit of one request in flight, given back on drop.
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
                "without a token: half of --max-requests,",
                Some(half),
                usize::MAX,
            ),
            all,
        }
    }

    /// Completes `work`, with a permit if it has to wait; `None` if all permits are taken then.
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

    /// Takes a permit; `None` if all are taken.
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
    fn requests_without_a_token_get_half_of_the_permits() {
        let now = Instant::now();
        for (max, without_token) in [(1, 1), (2, 1), (5, 2), (8, 4)] {
            let in_flight = InFlight::new(Limit::new("--max", Some(max), usize::MAX));
            let without: Vec<_> = (0..max)
                .filter_map(|_| in_flight.take(false, now))
                .collect();
            assert_eq!(without.len(), without_token);
            let users: Vec<_> = (0..max).filter_map(|_| in_flight.take(true, now)).collect();
            assert_eq!(users.len(), max - without_token);
            assert!(in_flight.take(false, now).is_none());
            drop(without);
            assert!(in_flight.take(false, now).is_some());
        }
    }

    #[tokio::test]
    async fn work_takes_a_permit_only_while_it_waits() {
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
    fn a_client_takes_two_file_descriptors() {
        for (descriptors, connections) in [(32, 16), (928, 464), (usize::MAX, 16_384)] {
            assert_eq!(Limit::new("--max", None, descriptors).max, connections);
            assert_eq!(Limit::new("--max", Some(1), descriptors).max, 1);
        }
    }

    #[test]
    fn a_dropped_permit_is_free_again() {
        let limit = Limit::new("--max", Some(1), 1024);
        let now = Instant::now();
        let permit = limit.take(now);
        assert!(permit.is_some() && limit.take(now).is_none());
        drop(permit);
        assert!(limit.take(now).is_some());
    }
}
