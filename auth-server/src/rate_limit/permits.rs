//! Bounds how much is done at once: what is beyond waits in the order of arrival, for a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Longest wait: a client would have given up after it.
const MAX_WAIT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Permits {
    shared: Arc<Semaphore>,
    /// One more, for those who are known: a flood of others leaves it free.
    for_known: Arc<Semaphore>,
}

impl Permits {
    pub(crate) fn of(max: usize) -> Self {
        Self {
            shared: Arc::new(Semaphore::new(max)),
            for_known: Arc::new(Semaphore::new(1)),
        }
    }

    /// Waits for a permit, which is released on drop; `None` after too long.
    pub(crate) async fn take(&self, is_known: bool) -> Option<OwnedSemaphorePermit> {
        let shared = Arc::clone(&self.shared).acquire_owned();
        let for_known = Arc::clone(&self.for_known).acquire_owned();
        let permit = async {
            tokio::select! {
                permit = shared => permit,
                permit = for_known, if is_known => permit,
            }
        };
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
        let running = [
            pool.take(false).await.unwrap(),
            pool.take(false).await.unwrap(),
        ];
        let flood = join_all((0..1000).map(|_| pool.take(false)));
        let (flood, known) = tokio::join!(flood, pool.take(true));
        assert!(flood.iter().all(Option::is_none));
        assert!(known.is_some());

        let (waiting, ()) = tokio::join!(pool.take(false), async {
            tokio::time::sleep(MAX_WAIT / 2).await;
            drop(running);
        });
        assert!(waiting.is_some(), "the end of a check is its turn");
    }
}
