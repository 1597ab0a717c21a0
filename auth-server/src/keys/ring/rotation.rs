//! How keys move through the ring: publish *next*, sign with it a lead later, list the former key
//! until its last token has expired, drop it. Functions of ring, policy and time: no clock, no
//! store, no randomness; fresh pairs come in as arguments.

use std::sync::Arc;

use contract::keys::KeyId;

use super::record::CurrentRecord;
use super::{KeyRing, NextKey, RetiredKey};
use crate::keys::clock::Time;
use crate::keys::pair::SigningKeyPair;

/// When keys change. All in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RotationPolicy {
    /// From publishing a key to signing with it.
    pub(crate) lead: i64,
    /// For how long a key is listed after it stopped signing.
    pub(crate) keep: i64,
    /// For how long a key signs; `None` where only an operator rotates.
    pub(crate) every: Option<i64>,
}

/// The one thing that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RotationStep {
    /// The next key signs from now on.
    Promote,
    /// A retired key's last token has expired.
    Drop,
    /// The schedule counts from now on: nobody knows when the current key began to sign.
    StartSchedule,
    /// A fresh next key is announced, as the schedule says.
    Publish,
}

/// What a key of the ring is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Current,
    Next,
    Retired,
}

impl Role {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Next => "next",
            Self::Retired => "retired",
        }
    }
}

impl KeyRing {
    /// What is due at `now`, if anything.
    pub(crate) fn next_step(&self, now: i64, policy: &RotationPolicy) -> Option<RotationStep> {
        if self.next().is_some_and(|next| next.signs_from <= now) {
            return Some(RotationStep::Promote);
        }
        if self.retired().iter().any(|retired| retired.until <= now) {
            return Some(RotationStep::Drop);
        }
        policy.every?;
        match self.publication_due(policy) {
            None if self.next().is_none() => Some(RotationStep::StartSchedule),
            Some(due) if due <= now => Some(RotationStep::Publish),
            _ => None,
        }
    }

    /// When something will be due next.
    pub(crate) fn next_due(&self, policy: &RotationPolicy) -> Option<i64> {
        let promotion = self.next().map(|next| next.signs_from);
        let drops = self.retired().iter().map(|retired| retired.until);
        drops
            .chain(promotion)
            .chain(self.publication_due(policy))
            .min()
    }

    /// A lead before the current key has signed for as long as it should.
    fn publication_due(&self, policy: &RotationPolicy) -> Option<i64> {
        if self.next().is_some() {
            return None;
        }
        let since = self.current_since()?;
        Some(since.saturating_add(policy.every?.saturating_sub(policy.lead)))
    }

    /// With a next key, which signs a lead later.
    pub(crate) fn publish(mut self, pair: Arc<SigningKeyPair>, now: i64, lead: i64) -> Self {
        self.rest.next = Some(NextKey::new(pair, now.saturating_add(lead)));
        self
    }

    /// With the time at which the next key signs a lead from now.
    pub(crate) fn bring_forward(mut self, now: i64, lead: i64) -> Self {
        if let Some(next) = &mut self.rest.next {
            next.signs_from = now.saturating_add(lead);
        }
        self
    }

    /// With the next key as the current one and the former current one retired; unchanged without a
    /// next key.
    fn promote(mut self, time: Time, policy: &RotationPolicy) -> Self {
        let Some(next) = self.rest.next.take() else {
            return self;
        };
        let former = self.replace_current(next.pair, time.earliest);
        self.retire(&former, time.latest.saturating_add(policy.keep));
        self
    }

    /// Without the retired keys whose time is over.
    fn drop_expired(mut self, now: i64) -> Self {
        self.rest.retired.retain(|retired| retired.until > now);
        self
    }

    pub(crate) fn start_schedule(mut self, now: i64) -> Self {
        self.rest.since = Some(CurrentRecord::new(self.current.id(), now));
        self
    }

    /// Everything that is due and needs no fresh key: what a server may do by itself while the store
    /// is away, because the store has taken the next key already.
    pub(crate) fn advance(mut self, time: impl Into<Time>, policy: &RotationPolicy) -> Self {
        let time = time.into();
        loop {
            self = match self.next_step(time.earliest, policy) {
                Some(RotationStep::Promote) => self.promote(time, policy),
                Some(RotationStep::Drop) => self.drop_expired(time.earliest),
                _ => return self,
            };
        }
    }

    /// The role of the key of this name.
    pub(crate) fn role_of(&self, kid: &str) -> Option<Role> {
        let is = |id: &KeyId| id.as_str() == kid;
        if is(self.current.id()) {
            Some(Role::Current)
        } else if self.next().is_some_and(|next| is(next.pair.id())) {
            Some(Role::Next)
        } else {
            let retired = self.retired().iter().any(|retired| is(retired.key.id()));
            retired.then_some(Role::Retired)
        }
    }

    /// With the key `id` gone for good. The current one is replaced at once: by the next one, or
    /// else by `fresh`; `None` where that is needed and missing.
    pub(crate) fn revoke(
        mut self,
        id: &KeyId,
        fresh: Option<&Arc<SigningKeyPair>>,
        now: i64,
    ) -> Option<Self> {
        if self.current.id() == id {
            let next = self.rest.next.take().map(|next| next.pair);
            self.replace_current(next.or_else(|| fresh.cloned())?, now);
        }
        self.rest.revoked.insert(id.clone());
        self.forget_revoked();
        Some(self)
    }

    /// Lists no key that was revoked.
    pub(in crate::keys) fn forget_revoked(&mut self) {
        let revoked = &self.rest.revoked;
        self.rest
            .next
            .take_if(|next| revoked.contains(next.pair.id()));
        self.rest
            .retired
            .retain(|retired| !revoked.contains(retired.key.id()));
    }

    /// Lists the public half of a key that signs no more, unless it is in the ring already or was
    /// revoked.
    pub(in crate::keys) fn retire(&mut self, former: &SigningKeyPair, until: i64) {
        self.retire_key(RetiredKey::of(former, until));
    }

    pub(in crate::keys) fn retire_key(&mut self, former: RetiredKey) {
        let id = former.key.id();
        if !self.is_listed(id) && !self.rest.revoked.contains(id) {
            self.rest.retired.push(former);
        }
    }

    fn replace_current(&mut self, pair: Arc<SigningKeyPair>, now: i64) -> Arc<SigningKeyPair> {
        self.rest.since = Some(CurrentRecord::new(pair.id(), now));
        std::mem::replace(&mut self.current, pair)
    }
}

#[cfg(test)]
mod tests;
