//! Limits the connections to the configured number, and to the available file descriptors.

use std::sync::Arc;

use runtime::net::fd_limit;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

/// Permits; a connection holds one until it ends.
pub(crate) struct ConnectionLimit {
    pub(crate) max: usize,
    free: Arc<Semaphore>,
}

impl ConnectionLimit {
    pub(crate) fn new(configured: u32) -> Self {
        let configured = configured as usize;
        let permits = configured.min(fd_limit::for_clients());
        if permits < configured {
            warn!(
                configured,
                permits, "fewer connections than --max-connections: the limit of open files is low"
            );
        }
        Self {
            max: permits,
            free: Arc::new(Semaphore::new(permits)),
        }
    }

    /// Waits for a permit. Meanwhile new connections wait in the kernel's queue, which costs less
    /// than a response, and those with a permit end within the request timeout.
    pub(crate) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).acquire_owned().await.ok()
    }
}
