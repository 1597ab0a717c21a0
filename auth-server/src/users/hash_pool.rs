//! Bounds the simultaneous password checks. A check takes 19 MiB and a core for tens of
//! milliseconds: more of them than cores would be no faster and exhaust the memory.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Longest wait for a check: a client would have given up after it.
const MAX_WAIT: Duration = Duration::from_secs(3);
/// Max checks at once: with more cores the memory is the limit.
const MAX_RUNNING: usize = 16;

/// The permits of running checks, granted in the order of arrival.
#[derive(Debug)]
pub(super) struct HashPool(Arc<Semaphore>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Busy;

impl HashPool {
    /// Sizes the pool for the cores of this machine or container.
    pub(super) fn for_this_machine() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self::new(cores.min(MAX_RUNNING))
    }

    fn new(max_running: usize) -> Self {
        Self(Arc::new(Semaphore::new(max_running)))
    }

    /// Waits for a permit, which is released on drop.
    pub(super) async fn permit(&self) -> Result<OwnedSemaphorePermit, Busy> {
        let permit = Arc::clone(&self.0).acquire_owned();
        match timeout(MAX_WAIT, permit).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Busy),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn some_run_one_waits_and_a_flood_is_sent_away_in_bounded_time() {
        tokio::time::pause();
        let pool = HashPool::new(2);
        let running = [pool.permit().await.unwrap(), pool.permit().await.unwrap()];
        let flood = join_all((0..1000).map(|_| pool.permit())).await;
        assert!(flood.iter().all(Result::is_err));

        let (waiting, ()) = tokio::join!(pool.permit(), async {
            tokio::time::sleep(MAX_WAIT / 2).await;
            drop(running);
        });
        assert!(waiting.is_ok(), "the end of a check is its turn");
    }
}
