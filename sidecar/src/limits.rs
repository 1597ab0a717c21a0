//! How many clients may be connected, and how many requests under way, at once.
//!
//! Each connection of a client takes a file descriptor, and each request may take one towards the
//! service: over HTTP/2 one connection brings many requests. When descriptors are used up nothing can
//! be opened any more: no key is fetched and no probe is answered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use process::admin;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// For the admin port, and as much again for the key refresh, the sockets that listen, the runtimes, the
/// standard streams.
const RESERVED_DESCRIPTORS: u64 = 2 * admin::MAX_CONNECTIONS as u64;
/// What a process gets that may hardly open anything.
const MIN_PLACES: usize = 16;
/// More than one sidecar has to do with; each connection takes some 30 kB after its first request, and up to 0.7 MB where its client does not read.
const MAX_BY_DEFAULT: usize = 16_384;
/// Who has too many connections has them again and again.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// How many descriptors the process may have. Raises the soft limit to the hard one, which costs
/// nothing: the soft one is low only for programs that call `select(2)`.
pub(crate) fn descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    current.unwrap_or(u64::MAX)
}

/// How many clients, and as many requests, so many descriptors are enough for.
fn places_within(descriptors: u64) -> usize {
    let places = descriptors.saturating_sub(RESERVED_DESCRIPTORS) / 2;
    usize::try_from(places).map_or(usize::MAX, |most| most.max(MIN_PLACES))
}

/// Counts what there may only be so many of, and remembers when it last complained.
#[derive(Debug)]
pub(crate) struct Limit {
    /// What the log calls it.
    flag: &'static str,
    most: usize,
    free: Arc<Semaphore>,
    warned: Mutex<Option<Instant>>,
}

impl Limit {
    /// What the `flag` asks for, or what so many file descriptors are enough for.
    pub(crate) fn new(flag: &'static str, asked: Option<usize>, descriptors: u64) -> Self {
        let enough_for = places_within(descriptors);
        let most = asked.unwrap_or(enough_for.min(MAX_BY_DEFAULT));
        if most > enough_for {
            tracing::warn!(
                descriptors,
                "{flag} {most}: the file descriptors are enough for {enough_for}"
            );
        }
        Self {
            flag,
            most,
            free: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            warned: Mutex::default(),
        }
    }

    /// A place, until it is dropped; `None` where all are taken.
    pub(crate) fn take(&self, now: Instant) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.free).try_acquire_owned().ok();
        if place.is_none() && self.warning_is_due(now) {
            tracing::warn!("{} {}: no place for more", self.flag, self.most);
        }
        place
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_counts_twice_and_some_descriptors_are_kept_back() {
        for (descriptors, connections) in [
            (0, 16),
            (64, 16),
            (1024, 464),
            (1_048_576, 16_384),
            (u64::MAX, 16_384),
        ] {
            assert_eq!(Limit::new("--max", None, descriptors).most, connections);
            assert_eq!(Limit::new("--max", Some(1), descriptors).most, 1);
        }
    }

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let limit = Limit::new("--max", Some(1), 1024);
        let now = Instant::now();
        let place = limit.take(now);
        assert!(place.is_some() && limit.take(now).is_none());
        drop(place);
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
