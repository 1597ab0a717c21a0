//! How many passwords are checked at once. One check takes 19 MiB and a core for tens of
//! milliseconds: more at a time than there are cores would be no faster and could take all memory.

use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many may wait for each check that runs: some three seconds' worth. Whoever came later would
/// have given up by the time it is his turn.
const WAITING_PER_RUNNING: usize = 128;
/// Beyond that many cores their memory is what counts.
const MAX_RUNNING: usize = 16;

/// The queue; clones share it.
#[derive(Debug, Clone)]
pub(super) struct PasswordWork {
    /// For everybody, running or waiting.
    places: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

/// Leave to check one password, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _running: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

/// The queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Busy;

impl PasswordWork {
    /// For this machine, or what a container may use of it.
    pub(super) fn for_this_machine() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let running = cores.min(MAX_RUNNING);
        Self::new(running, running * WAITING_PER_RUNNING)
    }

    fn new(running: usize, waiting: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(running + waiting)),
            running: Arc::new(Semaphore::new(running)),
        }
    }

    /// Waits for a turn, first come first served.
    pub(super) async fn turn(&self) -> Result<Turn, Busy> {
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| Busy)?;
        let running = Arc::clone(&self.running)
            .acquire_owned()
            .await
            .map_err(|_| Busy)?;
        Ok(Turn {
            _running: running,
            _place: place,
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn some_run_some_wait_and_the_rest_are_sent_away() {
        let work = PasswordWork::new(2, 1);
        let first = work.turn().now_or_never().unwrap().unwrap();
        let _second = work.turn().now_or_never().unwrap().unwrap();
        let mut third = Box::pin(work.turn());
        assert!((&mut third).now_or_never().is_none(), "it waits");
        assert_eq!(work.turn().now_or_never().unwrap().err(), Some(Busy));

        drop(first);
        let third = third.now_or_never().unwrap();
        assert!(third.is_ok(), "the first one's end is its turn");
    }

    #[tokio::test]
    async fn who_hangs_up_while_waiting_frees_his_place() {
        let work = PasswordWork::new(1, 1);
        let _running = work.turn().await.unwrap();
        let mut waiting = Box::pin(work.turn());
        assert!((&mut waiting).now_or_never().is_none());
        assert!(work.turn().now_or_never().unwrap().is_err());
        drop(waiting);
        assert!(
            work.turn().now_or_never().is_none(),
            "there is a place again"
        );
    }
}
