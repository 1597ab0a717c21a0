//! What the keys should be after a look into the store: a function of what the store holds, what
//! memory holds, and the time. `update` makes it so.

use std::collections::BTreeSet;
use std::sync::Arc;

use contract::keys::KeyId;
use contract::keys::signing_type::SigningType;

use crate::keys::StoredKeys;
use crate::keys::clock::Time;
use crate::keys::pair::SigningKeyPair;
use crate::keys::ring::rotation::{RotationPolicy, RotationStep};
use crate::keys::ring::{KeyRing, KeysFault, Rest};

/// What to do about stored keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// They are as they should be.
    Keep(KeyRing),
    /// The store should hold this instead.
    Write(KeyRing),
    /// That takes a fresh pair; ask again with one.
    Generate,
}

/// A server's point of view at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reconciliation<'a> {
    pub(crate) signing_type: SigningType,
    pub(crate) policy: &'a RotationPolicy,
    pub(crate) memory: Option<&'a KeyRing>,
    pub(crate) time: Time,
    /// Memory has been as it is since the last token of each retired key expired.
    pub(crate) is_settled: bool,
}

impl Reconciliation<'_> {
    /// Contract §1: a whole pair in the store is loaded, a missing half means a new pair; but a
    /// server that has a pair puts that one back rather than invalidating every token in use.
    ///
    /// Retired and revoked keys only ever become more by what others know, and time alone drops
    /// them: so what one server saw is not lost with the store, and no key that tokens in use were
    /// signed with goes unlisted because somebody else replaced the pair. A stored pair whose key
    /// was revoked counts as no pair: a failover or a backup brought it back.
    ///
    /// # Errors
    /// Stored keys that cannot be used. They are never overwritten, and memory keeps what it has.
    pub(crate) fn plan(
        &self,
        stored: &StoredKeys,
        fresh: Option<&Arc<SigningKeyPair>>,
    ) -> Result<Plan, KeysFault> {
        let held = Rest::parse(self.signing_type, stored)?;
        let rest = self.with_what_memory_knows(held.clone(), stored);
        let Some(current) = self.current(stored, &rest.revoked, fresh)? else {
            return Ok(Plan::Generate);
        };
        let mut ring = self.merged(KeyRing { current, rest }).bounded();
        // A clock alone may be behind, and would end keys in use; of a settled ring it ends none.
        if self.time.is_certain || self.is_settled && self.memory == Some(&ring) {
            ring = ring.with_times_put_right(self.time.latest, self.policy);
        }
        let Some(ring) = self.with_due_steps(ring, fresh) else {
            return Ok(Plan::Generate);
        };
        let pair_is_held = stored.pair.as_ref() == Some(ring.current.stored());
        Ok(if pair_is_held && ring.rest == held {
            Plan::Keep(ring)
        } else {
            Plan::Write(ring)
        })
    }

    /// A ring is never removed once it was written: a missing one was lost.
    fn with_what_memory_knows(&self, held: Rest, stored: &StoredKeys) -> Rest {
        let Some(memory) = self.memory else {
            return held;
        };
        let mut rest = match stored.ring {
            Some(_) => held,
            None => memory.rest.clone(),
        };
        rest.revoked.extend(memory.revoked().iter().cloned());
        rest
    }

    /// The pair that counts; `None` where there is none yet.
    fn current(
        &self,
        stored: &StoredKeys,
        revoked: &BTreeSet<KeyId>,
        fresh: Option<&Arc<SigningKeyPair>>,
    ) -> Result<Option<Arc<SigningKeyPair>>, KeysFault> {
        let mine = self.memory.map(KeyRing::current);
        let theirs = match (&stored.pair, mine) {
            (None, _) => None,
            (Some(pair), Some(mine)) if mine.stored() == pair => Some(Arc::clone(mine)),
            (Some(pair), _) => {
                let pair = SigningKeyPair::parse(self.signing_type, pair.clone())?;
                Some(Arc::new(pair))
            }
        };
        let candidates = [theirs.as_ref(), mine, fresh].into_iter().flatten();
        let mut usable = candidates.filter(|pair| !revoked.contains(pair.id()));
        Ok(usable.next().cloned())
    }

    /// With each key in one place, and with the keys of memory that may have signed tokens in use.
    fn merged(&self, mut ring: KeyRing) -> KeyRing {
        let current = ring.current.id().clone();
        ring.rest.next.take_if(|next| *next.pair.id() == current);
        ring.rest
            .retired
            .retain(|retired| *retired.key.id() != current);
        ring.forget_revoked();
        // A shared secret is verified with only while it is the current one: whoever verifies is
        // told one secret and no names.
        if let Some(memory) = self
            .memory
            .filter(|_| self.signing_type != SigningType::Hmac)
        {
            let earliest = self.time.earliest;
            for retired in memory.retired().iter().filter(|key| key.until > earliest) {
                ring.retire_key(retired.clone());
            }
            let until = self.time.latest.saturating_add(self.policy.keep);
            ring.retire(memory.current(), until);
        }
        ring
    }

    /// `None` where a fresh pair is due and not there.
    fn with_due_steps(
        &self,
        mut ring: KeyRing,
        fresh: Option<&Arc<SigningKeyPair>>,
    ) -> Option<KeyRing> {
        while let Some(step) = ring.next_step(self.time.earliest, self.policy) {
            ring = match step {
                RotationStep::Promote | RotationStep::Drop => ring.advance(self.time, self.policy),
                RotationStep::StartSchedule => ring.start_schedule(self.time.latest),
                RotationStep::Publish => {
                    ring.publish(Arc::clone(fresh?), self.time.latest, self.policy.lead)
                }
            };
        }
        Some(ring)
    }
}

#[cfg(test)]
mod tests;
