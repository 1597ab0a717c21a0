//! Plans the keys from the stored keys, the keys in memory, and the time. `update` executes the plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use postern_token::keys::KeyId;
use postern_token::keys::signing_type::SigningType;

use super::StoredKeys;
use super::pair::SigningKeyPair;
use super::ring::rotation::RotationPolicy;
use super::ring::{KeyRing, KeyRingError, RingMetadata};
use super::update::Plan;

/// The state of a server at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planner<'a> {
    pub(crate) signing_type: SigningType,
    pub(crate) policy: &'a RotationPolicy,
    pub(crate) memory: Option<&'a KeyRing>,
    /// Seconds since the epoch, by the store's clock.
    pub(crate) now: i64,
}

impl Planner<'_> {
    /// Makes a plan. As in contract §1, a whole stored pair is loaded and a missing half means a
    /// new pair; but a server restores its own pair first, which keeps the tokens in use valid.
    ///
    /// The store is right, unless it is an older copy of what this server knows: then the keys in
    /// memory are written back. A revoked key stays revoked, and a key that signed tokens in use stays
    /// listed, whatever the store says. A stored pair that was revoked counts as missing.
    ///
    /// # Errors
    /// Unusable stored keys, which are never overwritten; memory stays as it is.
    pub(crate) fn plan(
        &self,
        stored: &StoredKeys,
        fresh: Option<&Arc<SigningKeyPair>>,
    ) -> Result<Plan, KeyRingError> {
        let held = match self.memory {
            // The usual case at each poll: unchanged strings are not parsed again.
            Some(memory) if memory.is_stored_as(stored) => memory.metadata.clone(),
            _ => RingMetadata::parse(self.signing_type, stored)?,
        };
        let is_older_copy = stored.ring.is_some()
            && self.memory.is_some_and(|memory| {
                // An equal generation with another content is another history: the keys in memory stay,
                // because they have signed tokens.
                memory.metadata.rest.generation >= held.rest.generation && memory.metadata != held
            });
        let is_lost = stored.ring.is_none();
        let mut metadata = match self.memory {
            Some(memory) if is_older_copy || is_lost => memory.metadata.clone(),
            _ => held.clone(),
        };
        // The store lacked this next key: other servers learn of it from now on, and need the whole lead.
        let there = held.next.as_ref().map(|next| next.pair.id());
        if let Some(next) = &mut metadata.next
            && there != Some(next.pair.id())
        {
            let earliest = self.now.saturating_add(self.policy.lead);
            next.signs_from = next.signs_from.max(earliest);
        }
        let known = self.memory.map(KeyRing::revoked);
        // Of both, whichever is used: an older copy must not bring a revoked key back.
        metadata.revoked = known
            .into_iter()
            .flatten()
            .chain(&held.revoked)
            .cloned()
            .collect();
        let Some(current) = self.current(stored, is_older_copy, &metadata.revoked, fresh)? else {
            return Ok(Plan::Generate);
        };
        let ring = KeyRing { current, metadata };
        // Bounded after the keys of memory were added, with which the ring may be too long for a sidecar.
        let ring = self.with_keys_in_use(ring).bounded();
        // `advance` first promotes a next key: while there is one the schedule publishes no other.
        let ring = ring.advance(self.now, self.policy);
        let Some(ring) = ring.on_schedule(self.now, self.policy, fresh) else {
            return Ok(Plan::Generate);
        };
        let is_held = stored.pair.as_ref() == Some(ring.current.stored()) && ring.metadata == held;
        Ok(if is_held {
            Plan::Keep(ring)
        } else {
            Plan::Write(ring)
        })
    }

    /// Returns the pair to use; `None` before the first pair.
    fn current(
        &self,
        stored: &StoredKeys,
        is_older_copy: bool,
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
        let mut candidates = [theirs.as_ref(), mine, fresh];
        if is_older_copy {
            // The pair of an older copy may have been retired since.
            candidates.swap(0, 1);
        }
        let mut usable = candidates
            .into_iter()
            .flatten()
            .filter(|pair| !revoked.contains(pair.id()));
        Ok(usable.next().cloned())
    }

    /// Lists each key once, with the keys of memory that may have signed tokens in use.
    fn with_keys_in_use(&self, mut ring: KeyRing) -> KeyRing {
        // The stored pair may be the next key of this ring, and each key is listed once.
        let current = ring.current.id().clone();
        ring.metadata
            .next
            .take_if(|next| *next.pair.id() == current);
        ring.forget_revoked();
        // A shared secret verifies only while it is current: sidecars get one secret without an id.
        if let Some(memory) = self.memory
            && self.signing_type != SigningType::Hmac
        {
            for retired in memory.retired().iter().filter(|key| key.until() > self.now) {
                ring.retire_key(retired.clone());
            }
            let until = self.now.saturating_add(self.policy.keep);
            // A key of memory that is still current is listed already, and not retired.
            ring.retire(memory.current(), until);
        }
        ring
    }
}

#[cfg(test)]
mod tests;
