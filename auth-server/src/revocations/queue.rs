//! Revocations on their way from a route, or from the users file, to the key synchronization, which
//! writes all that are waiting at once.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Revocation;
use crate::store::StoreError;

/// Max number of waiting revocations: each waits for one write.
const MAX_WAITING: usize = 4096;
/// Longest wait for a write.
const STORE_TIMEOUT: Duration = Duration::from_secs(8);

/// The sending side.
#[derive(Debug, Clone)]
pub(crate) struct RevocationQueue(mpsc::Sender<Submitted>);

/// A revocation was not written to the store, or not known to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotStored {
    /// Too many wait already.
    Busy,
    /// The store did not take it. This server counts it all the same, and tries again.
    StoreUnavailable,
}

impl From<NotStored> for StoreError {
    fn from(_: NotStored) -> Self {
        Self::Unavailable("revocations are not in the store yet".to_owned())
    }
}

#[derive(Debug)]
struct Submitted {
    revocations: Vec<Revocation>,
    stored: Option<oneshot::Sender<bool>>,
}

/// The receiving side.
#[derive(Debug)]
pub(crate) struct RevocationInbox {
    receiver: mpsc::Receiver<Submitted>,
    waiting: Vec<Submitted>,
}

/// Creates both sides.
pub(crate) fn revocation_queue() -> (RevocationQueue, RevocationInbox) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let inbox = RevocationInbox {
        receiver,
        waiting: Vec::new(),
    };
    (RevocationQueue(sender), inbox)
}

impl RevocationQueue {
    /// Submits revocations, and waits until the store has them and all that came before.
    ///
    /// # Errors
    /// See [`NotStored`].
    pub(crate) async fn submit(&self, revocations: Vec<Revocation>) -> Result<(), NotStored> {
        let (stored, outcome) = oneshot::channel();
        let submitted = Submitted {
            revocations,
            stored: Some(stored),
        };
        let sent = self.0.try_send(submitted);
        sent.map_err(|_| NotStored::Busy)?;
        match timeout(STORE_TIMEOUT, outcome).await {
            Ok(Ok(true)) => Ok(()),
            _ => Err(NotStored::StoreUnavailable),
        }
    }

    /// Submits revocations without waiting for their write. Together they take one place in the
    /// queue.
    pub(crate) async fn note(&self, revocations: Vec<Revocation>) {
        let submitted = Submitted {
            revocations,
            stored: None,
        };
        let _ = self.0.send(submitted).await;
    }
}

impl RevocationInbox {
    /// Waits for revocations and takes all that are there. Without a sender it waits forever.
    pub(crate) async fn fill(&mut self) {
        match self.receiver.recv().await {
            Some(first) => self.waiting.push(first),
            None => std::future::pending().await,
        }
        while let Ok(next) = self.receiver.try_recv() {
            self.waiting.push(next);
        }
    }

    /// Returns the revocations that wait.
    pub(crate) fn waiting(&self) -> Vec<Revocation> {
        let waiting = self.waiting.iter();
        waiting.flat_map(|one| one.revocations.clone()).collect()
    }

    /// Reports the outcome of a write; `is_known` is true if this server counts them from now on.
    pub(crate) fn settle(&mut self, stored: bool, is_known: bool) {
        for one in &mut self.waiting {
            if let Some(waiting) = one.stored.take() {
                let _ = waiting.send(stored);
            }
        }
        if is_known {
            self.waiting.clear();
        }
    }
}
