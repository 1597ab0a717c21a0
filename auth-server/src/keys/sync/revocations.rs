//! Revocations of tokens in the synchronization: those that wait for a write, and those of removed
//! applications.

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::applications::AppId;
use crate::keys::ring::KeyRing;
use crate::revocations::Revocation;
use crate::revocations::queue::RevocationInbox;

pub(super) struct Revocations {
    inbox: RevocationInbox,
    /// Revocations of the synchronization's own, until a ring has them.
    noted: Mutex<Vec<Revocation>>,
    was_noted: Notify,
    /// Revocations that are in no ring yet.
    waiting: Vec<Revocation>,
}

impl Revocations {
    pub(super) fn new(inbox: RevocationInbox) -> Self {
        Self {
            inbox,
            noted: Mutex::default(),
            was_noted: Notify::new(),
            waiting: Vec::new(),
        }
    }

    /// Adds the revocation of all tokens of an application, which has been removed, to the next
    /// synchronization. That follows at once.
    pub(super) fn note_application(&self, id: &AppId, now: i64, keep: i64) {
        let revocation = Revocation::of_application(id.to_string(), now, keep);
        self.noted.lock().push(revocation);
        self.was_noted.notify_one();
    }

    /// Waits for revocations; forever where there are none.
    pub(super) async fn arrived(&mut self) {
        tokio::select! {
            () = self.inbox.fill() => {}
            () = self.was_noted.notified() => {}
        }
    }

    /// Takes those that wait, for one synchronization.
    pub(super) fn begin(&mut self) {
        self.waiting = self.noted.get_mut().clone();
        self.waiting.extend(self.inbox.waiting());
    }

    /// Reports the outcome of it; `is_known` is true if this server counts them from now on.
    pub(super) fn end(&mut self, stored: bool, is_known: bool) {
        if is_known {
            let noted = self.noted.get_mut();
            noted.retain(|revocation| !self.waiting.contains(revocation));
        }
        self.waiting.clear();
        self.inbox.settle(stored, is_known);
    }

    /// Adds those that wait; `None` without any.
    pub(super) fn added_to(&self, ring: &KeyRing, now: i64) -> Option<KeyRing> {
        let any = !self.waiting.is_empty();
        any.then(|| ring.clone().revoke_tokens(&self.waiting, now))
    }
}
