//! Parts of a response that `h2` has queued and not written yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;

/// The queued parts of one response. A stream is served until all parts have left: a client could take its
/// windows back (`SETTINGS_INITIAL_WINDOW_SIZE`, RFC 9113 §6.9.2) and leave the parts here.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    parts: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Unsent {
    /// Returns the number of queued parts.
    pub(super) fn parts(&self) -> usize {
        self.parts.load(Ordering::Acquire)
    }

    /// Counts `data` until `h2` has written it or dropped it.
    pub(super) fn counting(self: &Arc<Self>, data: Bytes) -> Bytes {
        self.parts.fetch_add(1, Ordering::AcqRel);
        Bytes::from_owner(Part {
            data,
            unsent: Arc::clone(self),
        })
    }

    /// Waits until fewer than `parts` are queued.
    pub(super) fn poll_fewer(&self, parts: usize, cx: &mut Context<'_>) -> Poll<()> {
        if self.parts() < parts {
            return Poll::Ready(());
        }
        *self.waker.lock() = Some(cx.waker().clone());
        // The number again: the last part may have left before the waker was stored.
        if self.parts() < parts {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

struct Part {
    data: Bytes,
    unsent: Arc<Unsent>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Subtracted before the waker is taken: a task that polls in between reads the new number.
        self.unsent.parts.fetch_sub(1, Ordering::AcqRel);
        if let Some(waker) = self.unsent.waker.lock().take() {
            waker.wake();
        }
    }
}
