//! How many connections are served at a time: as many as configured, and never so many that the
//! process runs out of file descriptors.

use std::sync::Arc;

use runtime::fd_limit;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

/// The places; a connection holds one to its end.
pub(crate) struct ConnectionLimit(Arc<Semaphore>);

impl ConnectionLimit {
    pub(crate) fn new(configured: u32) -> Self {
        let configured = configured as usize;
        let places = configured.min(fd_limit::for_clients());
        if places < configured {
            warn!(
                configured,
                places, "fewer connections than --max-connections: the limit of open files is low"
            );
        }
        Self(Arc::new(Semaphore::new(places)))
    }

    /// Waits for a place. Who connects in the meantime waits in the kernel's queue: that costs less
    /// than an answer, and those with a place are done within the request timeout.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}
