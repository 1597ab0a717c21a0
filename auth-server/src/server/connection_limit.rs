//! How many connections are served at a time: as many as configured, and never so many that the
//! process runs out of file descriptors.

use std::sync::Arc;

use process::admin;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

/// For the admin port, and as much again for the store, logs and files.
const RESERVED_DESCRIPTORS: u64 = 2 * admin::MAX_CONNECTIONS as u64;

/// The places; a connection holds one to its end.
pub(crate) struct ConnectionLimit(Arc<Semaphore>);

impl ConnectionLimit {
    /// Raises the process's own limit of descriptors as far as it may and is needed.
    pub(crate) fn new(configured: u32) -> Self {
        let wanted = u64::from(configured) + RESERVED_DESCRIPTORS;
        let limit = getrlimit(Resource::Nofile);
        let raised = wanted_limit(&limit, wanted);
        let granted = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => raised.current,
            Err(_) => limit.current,
        };
        let places = places(configured, granted);
        if places < configured {
            warn!(
                configured,
                places, "fewer connections than --max-connections: the limit of open files is low"
            );
        }
        Self(Arc::new(Semaphore::new(places as usize)))
    }

    /// Waits for a place. Who connects in the meantime waits in the kernel's queue: that costs less
    /// than an answer, and those with a place are done within the request timeout.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}

/// No limit (`None`) is above every number.
fn wanted_limit(limit: &Rlimit, wanted: u64) -> Rlimit {
    let reachable = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    Rlimit {
        current: limit.current.map(|current| current.max(reachable)),
        maximum: limit.maximum,
    }
}

fn places(configured: u32, descriptors: Option<u64>) -> u32 {
    let left = descriptors.map_or(u64::MAX, |all| all.saturating_sub(RESERVED_DESCRIPTORS));
    u32::try_from(left)
        .unwrap_or(u32::MAX)
        .clamp(1, configured.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_descriptors_is_raised_as_far_as_needed_and_allowed() {
        for (current, maximum, wanted, expected) in [
            (Some(1024), Some(4096), 2000, Some(2000)),
            (Some(1024), Some(4096), 9000, Some(4096)),
            (Some(1024), None, 9000, Some(9000)),
            (Some(8192), Some(8192), 2000, Some(8192)),
            (None, None, 2000, None),
        ] {
            let raised = wanted_limit(&Rlimit { current, maximum }, wanted);
            assert_eq!((raised.current, raised.maximum), (expected, maximum));
        }
    }

    #[test]
    fn there_are_no_more_places_than_descriptors_for_them() {
        for (configured, descriptors, expected) in [
            (16_384, Some(20_000), 16_384),
            (16_384, Some(1024), 928),
            (16_384, Some(10), 1),
            (16_384, None, 16_384),
            (1, Some(1024), 1),
        ] {
            assert_eq!(places(configured, descriptors), expected, "{descriptors:?}");
        }
    }
}
