//! The limit of open connections, and the defaults of both limits.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use runtime::logs::once_a_minute::OnceAMinute;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// An idle connection takes some 30 kB. A client that does not read takes up to 0.25 MiB for its
/// connection and 0.75 MiB for each request in flight, 1.25 MiB if the service speaks HTTP/2.
const MAX_BY_DEFAULT: usize = 16_384;

/// Returns the `configured` number, by default one for every two file descriptors: half of them are
/// for clients, half for requests.
pub(crate) fn max_of(flag: &str, configured: Option<usize>, descriptors: usize) -> usize {
    let enough_for = descriptors / 2;
    let max = configured.unwrap_or(enough_for.min(MAX_BY_DEFAULT));
    if max > enough_for {
        tracing::warn!(
            descriptors,
            "{flag} {max}: the file descriptors are enough for {enough_for}"
        );
    }
    max
}

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
    pub(crate) fn new(flag: &'static str, max: usize) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_two_file_descriptors() {
        for (descriptors, connections) in [(32, 16), (928, 464), (usize::MAX, 16_384)] {
            assert_eq!(max_of("--max", None, descriptors), connections);
            assert_eq!(max_of("--max", Some(1), descriptors), 1);
        }
    }

    #[test]
    fn a_dropped_permit_is_free_again() {
        let limit = Limit::new("--max", 1);
        let now = Instant::now();
        let permit = limit.take(now);
        assert!(permit.is_some() && limit.take(now).is_none());
        drop(permit);
        assert!(limit.take(now).is_some());
    }
}
