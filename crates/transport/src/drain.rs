//! The end of everything that serves connections: one [`DrainTrigger`], which each [`DrainWatcher`] follows.
//!
//! ```text
//!             who calls what                       what watchers do
//! Serving
//!    │  begin()          a signal, a failed task,     each response ends its connection
//!    │                   or `POST /drain`;
//!    │                   not ready from here on
//! Draining
//!    │  stop_accepting() once the lame-duck time      the accept loop ends, streams get a GOAWAY
//!    │                   is over: routers know
//! Closing
//!    │  close()          a moment later, so that      idle connections end
//!    │                   a last request is served
//! Ending
//!    │                   every watcher is dropped, or the drain timeout is over
//!    ▼
//! close() returns: spans are flushed, and the process ends
//! ```
//!
//! A phase includes the phases before it, and no phase ever returns. The accept loop holds a watcher, and so
//! does each connection until its last request is recorded: once no watcher is left, all work is done.
//!
//! Two events are not this one. A connection whose slot another client needs ends alone (`goodbye` of
//! [`Slot::serve`](crate::net::connection_slots::Slot::serve)), and a task that fails is reported by the
//! [`supervisor`](postern_process::supervisor): its owner then calls [`DrainTrigger::begin`].

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Silence before idle connections end: a client that does not know of the stop may have a request
/// on its way, whose response ends its connection.
const LAST_REQUEST: Duration = Duration::from_secs(1);

/// A step on the way to the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Connections are kept.
    #[default]
    Serving,
    /// Responses end their connection: a client could send its next request into the final close,
    /// and not know that it was never read.
    Draining,
    /// No connection is accepted.
    Closing,
    /// Idle connections end.
    Ending,
}

/// Moves its watchers from phase to phase; clones move the same watchers.
#[derive(Debug, Clone, Default)]
pub struct DrainTrigger {
    began: Arc<OnceLock<Instant>>,
    phase: watch::Sender<Phase>,
}

/// Keeps [`DrainTrigger::close`] waiting until it is dropped.
#[derive(Debug, Clone)]
pub struct DrainWatcher(watch::Receiver<Phase>);

impl DrainTrigger {
    /// Makes a watcher.
    #[must_use]
    pub fn watcher(&self) -> DrainWatcher {
        DrainWatcher(self.phase.subscribe())
    }

    /// Returns the number of watchers.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.phase.receiver_count()
    }

    /// True from [`Phase::Draining`] on. Each response checks it, so it takes no lock.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.began.get().is_some()
    }

    /// Starts the drain unless it has begun, and returns the time of its start.
    pub fn begin(&self) -> Instant {
        let began = *self.began.get_or_init(Instant::now);
        self.advance(Phase::Draining);
        began
    }

    /// Ends the accept loops.
    pub fn stop_accepting(&self) {
        self.begin();
        self.advance(Phase::Closing);
    }

    /// Stops accepting, and soon ends idle connections. Returns true once every watcher is dropped,
    /// and false if some are left after `timeout`.
    pub async fn close(&self, timeout: Duration) -> bool {
        self.stop_accepting();
        let closed = async {
            let _ = tokio::time::timeout(LAST_REQUEST, self.phase.closed()).await;
            self.advance(Phase::Ending);
            self.phase.closed().await;
        };
        tokio::time::timeout(timeout, closed).await.is_ok()
    }

    fn advance(&self, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let is_later = *phase < next;
            // `POST /drain` may come at any time, and must not turn the phase back.
            *phase = next.max(*phase);
            is_later
        });
    }
}

impl DrainWatcher {
    /// Completes in this phase and in later ones, and if no trigger is left that could reach them.
    pub async fn reached(&mut self, phase: Phase) {
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn phases_follow_each_other_and_none_returns() {
        let drain = DrainTrigger::default();
        let mut watcher = drain.watcher();
        let began = drain.begin();
        watcher.reached(Phase::Draining).await;
        drain.stop_accepting();
        assert_eq!(drain.begin(), began);
        watcher.reached(Phase::Closing).await;
        assert_eq!(*watcher.0.borrow(), Phase::Closing);

        let ended = async move { watcher.reached(Phase::Ending).await };
        let (is_closed, ()) = tokio::join!(drain.close(2 * LAST_REQUEST), ended);
        assert!(is_closed, "its watcher is gone");
        let _left = drain.watcher();
        assert!(!drain.close(2 * LAST_REQUEST).await);
    }
}
