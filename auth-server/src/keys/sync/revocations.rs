//! Revocations of tokens in the synchronization: those that wait for a write, those of removed
//! applications, and the time at which old ones are over.

use parking_lot::Mutex;
use runtime::process::clock::unix_now;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::applications::AppId;
use crate::keys::clock::Time;
use crate::keys::ring::KeyRing;
use crate::revocations::Revocation;
use crate::revocations::queue::RevocationInbox;

pub(super) struct Revocations {
    /// The start of this process, by both kinds of clock.
    started: (Instant, i64),
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
            started: (Instant::now(), unix_now()),
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

    /// Returns the time up to which revocations are over. One clock alone may be wrong and bring
    /// revoked tokens back: it counts only with the monotonic clock, and only after `keep`, the
    /// lifetime of a token.
    pub(super) fn over(&self, time: Time, keep: i64) -> Option<i64> {
        if time.is_certain {
            return Some(time.earliest);
        }
        let (started, began) = self.started;
        let passed = i64::try_from(started.elapsed().as_secs()).unwrap_or(i64::MAX);
        (passed >= keep).then(|| time.earliest.min(began.saturating_add(passed)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::revocations::queue::revocation_queue;

    #[tokio::test(start_paused = true)]
    async fn one_clock_counts_after_a_lifetime_of_passed_time() {
        const KEEP: i64 = 1_000;
        let revocations = Revocations::new(revocation_queue().1);
        let began = revocations.started.1;
        let by_one_clock = |now| Time {
            is_certain: false,
            ..Time::from(now)
        };
        let over = |time| revocations.over(time, KEEP);
        assert_eq!(over(Time::from(began + 7)), Some(began + 7));
        assert_eq!(over(by_one_clock(began + 100_000)), None);
        tokio::time::advance(Duration::from_secs(1_000)).await;
        assert_eq!(over(by_one_clock(began + 100_000)), Some(began + 1_000));
        assert_eq!(over(by_one_clock(began + 900)), Some(began + 900));
    }
}
