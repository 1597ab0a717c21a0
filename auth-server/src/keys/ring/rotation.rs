//! Rotation: publish *next*, sign with it after the lead, list the former key until its last token
//! has expired, drop it. Pure functions of ring, policy and time; fresh pairs are arguments.

use std::sync::Arc;

use postern_token::keys::KeyId;

use super::record::CurrentRecord;
use super::{KeyRing, NextKey, RetiredKey, Role};
use crate::keys::pair::SigningKeyPair;

/// Times of a rotation, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RotationPolicy {
    /// The time from publishing a key to signing with it.
    pub(crate) lead: i64,
    /// The time for which a key is listed after it stopped signing.
    pub(crate) keep: i64,
    /// Interval of the schedule; `None` if only operators rotate.
    pub(crate) every: Option<i64>,
}

/// The default of `--leeway` at sidecars, whose clocks are not the store's.
pub(crate) const SIDECAR_LEEWAY_SECONDS: i64 = 30;
/// Max seconds between servers that learn of one promotion, so that not each of them writes its own end of the
/// listing. `keep` has room for them: a token of these seconds has expired by then.
const SAME_PROMOTION: i64 = SIDECAR_LEEWAY_SECONDS;

impl KeyRing {
    pub(crate) fn next_due(&self, policy: &RotationPolicy) -> Option<i64> {
        self.listed()
            .filter(|it| it.role != Role::Current)
            .filter_map(|it| it.time)
            .chain(self.publication_due(policy))
            .min()
    }

    /// Returns the time to publish: one lead before the end of the current key's interval.
    fn publication_due(&self, policy: &RotationPolicy) -> Option<i64> {
        if self.next().is_some() {
            return None;
        }
        // `current_since` is unknown until the schedule begins, or if another program has replaced the pair.
        Some(
            self.current_since()?
                .saturating_add(policy.every?.saturating_sub(policy.lead)),
        )
    }

    /// Adds a next key, which signs one lead later.
    pub(crate) fn publish(mut self, pair: Arc<SigningKeyPair>, now: i64, lead: i64) -> Self {
        self.metadata.next = Some(NextKey::new(pair, now.saturating_add(lead)));
        self
    }

    pub(crate) fn start_schedule(mut self, now: i64) -> Self {
        self.metadata.rest.current = Some(CurrentRecord::new(self.current.id(), now));
        self
    }

    /// Promotes the next key and drops retired keys where that is due. This is safe without the store, which
    /// has the next key already.
    pub(crate) fn advance(mut self, now: i64, policy: &RotationPolicy) -> Self {
        let next = &mut self.metadata.next;
        // At most one key is promoted: there is never a second next key.
        if let Some(next) = next.take_if(|next| next.signs_from <= now) {
            let former = self.replace_current(next.pair, now);
            // After the replacement: a key that is listed as the current one is not retired.
            self.retire(&former, now.saturating_add(policy.keep));
        }
        let retired = &mut self.metadata.retired;
        retired.retain(|retired| retired.until() > now);
        self
    }

    /// Publishes a next key when it is due; begins the schedule if it is unknown when the current key began
    /// to sign. Returns `None` if `fresh` is needed and missing.
    pub(in crate::keys) fn on_schedule(
        self,
        now: i64,
        policy: &RotationPolicy,
        fresh: Option<&Arc<SigningKeyPair>>,
    ) -> Option<Self> {
        if policy.every.is_none() || self.next().is_some() {
            return Some(self);
        }
        match self.publication_due(policy) {
            None => Some(self.start_schedule(now)),
            Some(due) if due <= now => Some(self.publish(Arc::clone(fresh?), now, policy.lead)),
            Some(_) => Some(self),
        }
    }

    /// Revokes the key `id`. A current key is replaced by the next key, or else by `fresh`; returns `None` if
    /// `fresh` is needed and missing.
    pub(crate) fn revoke(
        mut self,
        id: &KeyId,
        fresh: Option<&Arc<SigningKeyPair>>,
        now: i64,
    ) -> Option<Self> {
        if self.current.id() == id {
            // Verifiers know the next key already; a fresh one they have to fetch first.
            let next = self.metadata.next.take().map(|next| next.pair);
            self.replace_current(next.or_else(|| fresh.cloned())?, now);
        }
        self.metadata.revoked.insert(id.clone());
        // The former current key as well: `replace_current` does not list it.
        self.forget_revoked();
        Some(self)
    }

    /// Removes revoked keys from the listing.
    pub(in crate::keys) fn forget_revoked(&mut self) {
        let revoked = &self.metadata.revoked;
        self.metadata
            .next
            .take_if(|next| revoked.contains(next.pair.id()));
        self.metadata
            .retired
            .retain(|retired| !revoked.contains(retired.key.id()));
    }

    /// Lists the public half of a former pair.
    pub(in crate::keys) fn retire(&mut self, former: &SigningKeyPair, until: i64) {
        self.retire_key(RetiredKey::new(former, until));
    }

    /// Lists the public half of a former key, unless it signs here or was revoked. A key that a server signs with
    /// again, from an older copy of the store, is listed for longer.
    pub(in crate::keys) fn retire_key(&mut self, former: RetiredKey) {
        let id = former.key.id();
        let listed = self.metadata.retired.iter_mut();
        for listed in listed.filter(|listed| listed.key.id() == id) {
            if listed.until() + SAME_PROMOTION < former.until() {
                *listed = former.clone();
            }
        }
        if !self.is_listed(id) && !self.metadata.revoked.contains(id) {
            self.metadata.retired.push(former);
        }
    }

    fn replace_current(&mut self, pair: Arc<SigningKeyPair>, now: i64) -> Arc<SigningKeyPair> {
        self.metadata.rest.current = Some(CurrentRecord::new(pair.id(), now));
        std::mem::replace(&mut self.current, pair)
    }
}

#[cfg(test)]
mod tests;
