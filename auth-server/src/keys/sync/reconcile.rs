//! Plans the keys from the stored ones, those in memory, and the time. `compare_and_swap` executes
//! the plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use wire::keys::KeyId;
use wire::keys::signing_type::SigningType;

use crate::changed_by;
use crate::keys::StoredKeys;
use crate::keys::clock::Time;
use crate::keys::pair::SigningKeyPair;
use crate::keys::ring::rotation::{RotationPolicy, RotationStep};
use crate::keys::ring::{KeyRing, KeyRingError, RingMetadata};
use crate::revocations::{MergeTime, Revocations};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Keep(KeyRing),
    /// Write this ring instead.
    Write(KeyRing),
    /// Plan again with a fresh pair.
    Generate,
}

/// The state of a server at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reconciliation<'a> {
    pub(crate) signing_type: SigningType,
    pub(crate) policy: &'a RotationPolicy,
    pub(crate) memory: Option<&'a KeyRing>,
    pub(crate) time: Time,
    /// True if memory is unchanged since the last token of each retired key expired.
    pub(crate) is_settled: bool,
    /// Entries that end up to this time are certainly over.
    pub(crate) over: Option<i64>,
}

impl Reconciliation<'_> {
    /// Makes a plan. As in contract §1, a whole stored pair is loaded and a missing half means a
    /// new pair; but a server restores its own pair first, which keeps the tokens in use valid.
    ///
    /// Retired and revoked keys are merged, and only time drops them, so nothing is lost with the
    /// store or when a pair is replaced elsewhere. A stored pair that was revoked counts as
    /// missing: a failover or a backup brought it back.
    ///
    /// # Errors
    /// Unusable stored keys, which are never overwritten; memory stays as it is.
    pub(crate) fn plan(
        &self,
        stored: &StoredKeys,
        fresh: Option<&Arc<SigningKeyPair>>,
    ) -> Result<Plan, KeyRingError> {
        let held = RingMetadata::parse(self.signing_type, stored)?;
        let metadata = self.merge_memory(held.clone(), stored);
        let Some(current) = self.current(stored, &metadata.revoked, fresh)? else {
            return Ok(Plan::Generate);
        };
        let mut ring = self.merged(KeyRing { current, metadata }).bounded();
        // A single clock may be wrong and drop keys in use, except from a settled ring.
        if self.time.is_certain || self.is_settled && self.memory == Some(&ring) {
            ring = ring.with_corrected_times(self.time.latest, self.policy);
        }
        let Some(ring) = self.with_due_steps(ring, fresh) else {
            return Ok(Plan::Generate);
        };
        let pair_is_held = stored.pair.as_ref() == Some(ring.current.stored());
        Ok(if pair_is_held && ring.metadata == held {
            Plan::Keep(ring)
        } else {
            Plan::Write(ring)
        })
    }

    /// Merges memory into the stored ring. A ring is never deleted once written: a missing one was
    /// lost.
    fn merge_memory(&self, mut held: RingMetadata, stored: &StoredKeys) -> RingMetadata {
        let time = MergeTime {
            latest: self.time.latest,
            over: self.over,
            keep: Some(self.policy.keep),
        };
        let Some(memory) = self.memory else {
            held.revocations = held.revocations.merged(&Revocations::default(), time);
            return held;
        };
        let mut metadata = match stored.ring {
            Some(_) => held,
            None => memory.metadata.clone(),
        };
        metadata.revoked.extend(memory.revoked().iter().cloned());
        metadata.revocations = metadata.revocations.merged(memory.revocations(), time);
        metadata.changed_by = changed_by::later(metadata.changed_by, memory.changed_by());
        metadata
    }

    /// Returns the pair to use; `None` before the first one.
    fn current(
        &self,
        stored: &StoredKeys,
        revoked: &BTreeSet<KeyId>,
        fresh: Option<&Arc<SigningKeyPair>>,
    ) -> Result<Option<Arc<SigningKeyPair>>, KeyRingError> {
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

    /// Lists each key once, with those of memory that may have signed tokens in use.
    fn merged(&self, mut ring: KeyRing) -> KeyRing {
        let current = ring.current.id().clone();
        ring.metadata
            .next
            .take_if(|next| *next.pair.id() == current);
        ring.metadata
            .retired
            .retain(|retired| *retired.key.id() != current);
        ring.forget_revoked();
        // A shared secret verifies only while it is current: sidecars get one secret without an id.
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

    /// Takes the due steps; `None` if that takes a fresh pair.
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
