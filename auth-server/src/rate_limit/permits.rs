//! Bounds how much is done at once: what is beyond waits in the order of arrival, for a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Longest wait: a client would have given up after it.
const MAX_WAIT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Permits(Arc<Semaphore>);

impl Permits {
    pub(crate) fn of(max: usize) -> Self {
        Self(Arc::new(Semaphore::new(max)))
    }

    /// Waits for a permit, which is released on drop; `None` after too long.
    pub(crate) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.0).acquire_owned();
        timeout(MAX_WAIT, permit).await.ok()?.ok()
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
        let pool = Permits::of(2);
        let running = [pool.take().await.unwrap(), pool.take().await.unwrap()];
        let flood = join_all((0..1000).map(|_| pool.take())).await;
        assert!(flood.iter().all(Option::is_none));

        let (waiting, ()) = tokio::join!(pool.take(), async {
            tokio::time::sleep(MAX_WAIT / 2).await;
            drop(running);
        });
        assert!(waiting.is_some(), "the end of a check is its turn");
    }
}
