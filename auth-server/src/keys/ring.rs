//! The keys of one installation: *current* signs, *next* is announced and will sign, *retired* keys
//! only verify. `rotation` moves them along.

pub(crate) mod bounds;
pub(crate) mod events;
pub(crate) mod record;
pub(crate) mod rotation;

use std::collections::BTreeSet;
use std::sync::Arc;

use postern_process::named_enum;
use postern_token::keys::signing_type::SigningType;
use postern_token::keys::{KeyError, KeyId, KeySet, VerificationKey};
use postern_token::times::moment;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use self::record::{NextRecord, RetiredRecord, RingRecord, Unknown};
use super::pair::{KeyPairError, SigningKeyPair};
use super::{StoredKeyPair, StoredKeys};
use crate::store::StoreError;

/// Max seconds for which a former primary of the store may go on, with commits that no replica has.
const MAY_BE_LOST: i64 = 600;

/// All keys in use. Equal rings have equal stored forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRing {
    pub(super) current: Arc<SigningKeyPair>,
    pub(super) metadata: RingMetadata,
}

/// The ring besides the current pair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RingMetadata {
    pub(super) next: Option<NextKey>,
    /// In the order of their retirement.
    pub(super) retired: Vec<RetiredKey>,
    /// Keys that are never listed again. They are kept forever (43 bytes each), because a server that has not
    /// read a revocation, or a backup, would bring the key back.
    pub(super) revoked: BTreeSet<KeyId>,
    /// The members of the record that need no parsing.
    pub(super) rest: RingRecord,
}

/// A key that is announced ahead of time, so that every verifier knows it before it signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NextKey {
    pub(crate) pair: Arc<SigningKeyPair>,
    /// Seconds since the epoch.
    pub(crate) signs_from: i64,
    unknown: Unknown,
}

/// The public half of a key that no longer signs.
#[derive(Debug, Clone)]
pub(crate) struct RetiredKey {
    pub(crate) key: VerificationKey,
    record: RetiredRecord,
}

impl PartialEq for RetiredKey {
    fn eq(&self, other: &Self) -> bool {
        self.record == other.record
    }
}

impl Eq for RetiredKey {}

named_enum! {
    pub(crate) enum Role {
        Current = "current",
        Next = "next",
        Retired = "retired",
    }
}

/// A key that sidecars get.
pub(crate) struct ListedKey<'r> {
    pub(crate) role: Role,
    pub(crate) key: &'r VerificationKey,
    /// The start of its signing, or the end of its listing, in seconds since the epoch.
    pub(crate) time: Option<i64>,
}

/// Error in stored keys. The texts hold no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyRingError {
    #[error(transparent)]
    Pair(#[from] KeyPairError),
    #[error("not a key ring (line {line}, column {column})")]
    MalformedRing { line: usize, column: usize },
    #[error("a key ring of version {0}, which a newer server wrote")]
    NewerRing(u32),
    #[error("the next key: {0}")]
    Next(KeyPairError),
    #[error("a retired key: {0}")]
    Retired(KeyError),
}

impl KeyRing {
    /// Parses stored keys; `None` if there is no pair.
    pub(crate) fn parse(
        signing_type: SigningType,
        stored: &StoredKeys,
    ) -> Result<Option<Self>, KeyRingError> {
        let Some(pair) = stored.pair.clone() else {
            return Ok(None);
        };
        let current = SigningKeyPair::parse(signing_type, pair)?;
        Self::around(Arc::new(current), signing_type, stored).map(Some)
    }

    /// Puts `current` in place of the stored pair.
    pub(crate) fn around(
        current: Arc<SigningKeyPair>,
        signing_type: SigningType,
        stored: &StoredKeys,
    ) -> Result<Self, KeyRingError> {
        Ok(Self {
            current,
            metadata: RingMetadata::parse(signing_type, stored)?,
        })
    }

    /// Serializes the ring. An empty ring is omitted: most installations never rotate, and other
    /// implementations of the contract know only the pair.
    pub(crate) fn to_stored(&self) -> Result<StoredKeys, StoreError> {
        let record = self.metadata.record();
        let mut stored = StoredKeys {
            pair: Some(self.current.stored().clone()),
            ring: None,
        };
        if record != RingRecord::default() {
            stored.ring = Some(record.into_stored()?);
        }
        Ok(stored)
    }

    /// Returns true if the current key began to sign at `now` or shortly before: a fail-over may still lose its
    /// commit.
    pub(crate) fn has_new_key(&self, now: i64) -> bool {
        let (epoch, _) = self.generation();
        let since = self.current_since().unwrap_or(epoch);
        now.saturating_sub(since) < MAY_BE_LOST
    }

    /// Returns the number of this state of its history.
    pub(crate) const fn generation(&self) -> (i64, u64) {
        self.metadata.rest.generation.numbers()
    }

    /// Returns true if this ring has these stored strings.
    pub(super) fn is_stored_as(&self, stored: &StoredKeys) -> bool {
        self.to_stored().is_ok_and(|mine| mine == *stored)
    }

    /// Counts a change of the keys at `now`.
    pub(crate) fn in_next_generation(mut self, now: i64) -> Self {
        let generation = &mut self.metadata.rest.generation;
        // Each change counts, so that an older copy of the store can be distinguished from a later ring.
        *generation = generation.next(now);
        self
    }

    pub(crate) fn current(&self) -> &Arc<SigningKeyPair> {
        &self.current
    }

    pub(crate) fn current_since(&self) -> Option<i64> {
        let current = self.metadata.rest.current.as_ref()?;
        // Another program of the contract may have replaced the pair alone: the time then belongs
        // to a former key.
        if current.kid != self.current.id().as_str() {
            return None;
        }
        Some(current.since)
    }

    pub(crate) fn next(&self) -> Option<&NextKey> {
        self.metadata.next.as_ref()
    }

    pub(crate) fn retired(&self) -> &[RetiredKey] {
        &self.metadata.retired
    }

    pub(crate) fn revoked(&self) -> &BTreeSet<KeyId> {
        &self.metadata.revoked
    }

    /// Notes at `now` if the other records of the store are yet to be encrypted.
    pub(crate) fn being_encrypted(mut self, is_being: bool, now: i64) -> Self {
        self.metadata.rest.being_encrypted = is_being;
        self.in_next_generation(now)
    }

    /// Returns every key that may have signed a valid token.
    pub(crate) fn listed(&self) -> impl Iterator<Item = ListedKey<'_>> {
        let current = ListedKey {
            role: Role::Current,
            key: self.current.verification_key(),
            time: self.current_since(),
        };
        let next = self.next().map(|next| ListedKey {
            role: Role::Next,
            key: next.pair.verification_key(),
            time: Some(next.signs_from),
        });
        let retired = self.retired().iter().map(|retired| ListedKey {
            role: Role::Retired,
            key: &retired.key,
            time: Some(retired.until()),
        });
        // Next is listed before it signs: every verifier has to know it by then.
        std::iter::once(current).chain(next).chain(retired)
    }

    /// Returns each key with its role, and the time of its next or last change.
    pub(crate) fn rows(&self) -> Vec<Value> {
        let mut rows = Vec::new();
        for ListedKey { role, key, time } in self.listed() {
            let mut row = json!({"kid": key.id().as_str(), "role": role.name()});
            if let Some(time) = time {
                let name = match role {
                    Role::Current => "signsSince",
                    Role::Next => "signsFrom",
                    Role::Retired => "listedUntil",
                };
                row[name] = moment(time).into();
            }
            rows.push(row);
        }
        for kid in self.revoked() {
            rows.push(json!({"kid": kid.as_str(), "role": "revoked"}));
        }
        rows
    }

    pub(crate) fn verification_keys(&self) -> impl Iterator<Item = &VerificationKey> {
        self.listed().map(|listed| listed.key)
    }

    pub(crate) fn role_of(&self, id: &KeyId) -> Option<Role> {
        let listed = self.listed().find(|listed| listed.key.id() == id)?;
        Some(listed.role)
    }

    pub(crate) fn verification_key_set(&self, signing_type: SigningType) -> KeySet {
        if signing_type == SigningType::Hmac {
            // The key has no id, so that it matches any `kid` in a token.
            return KeySet::nameless(self.current.verification_key().clone());
        }
        KeySet::named(self.verification_keys().cloned().collect())
    }

    pub(crate) fn is_listed(&self, id: &KeyId) -> bool {
        self.role_of(id).is_some()
    }
}

/// Returns true if the other records of the store are yet to be encrypted; false for text that is no ring.
pub(super) fn is_being_encrypted(stored: Option<&Zeroizing<String>>) -> bool {
    RingRecord::parse(stored).is_ok_and(|record| record.being_encrypted)
}

/// Returns a stored ring with these revoked keys added, whatever else it holds; `None` if it has all of them,
/// or is no ring.
pub(super) fn with_revoked(
    stored: Option<&Zeroizing<String>>,
    revoked: &BTreeSet<KeyId>,
) -> Option<Zeroizing<String>> {
    let mut record = RingRecord::parse(stored).ok()?;
    let mut missing: Vec<_> = revoked.iter().map(KeyId::to_string).collect();
    missing.retain(|kid| !record.revoked.contains(kid));
    if missing.is_empty() {
        return None;
    }
    // The set only grows: keys that another server has revoked stay in it.
    record.revoked.extend(missing);
    record.into_stored().ok()
}

impl RingMetadata {
    pub(super) fn parse(
        signing_type: SigningType,
        stored: &StoredKeys,
    ) -> Result<Self, KeyRingError> {
        let mut rest = RingRecord::parse(stored.ring.as_ref())?;
        let next = match rest.next.take() {
            Some(record) => Some(NextKey::parse(signing_type, record)?),
            None => None,
        };
        let mut retired = Vec::new();
        for record in std::mem::take(&mut rest.retired) {
            retired.push(RetiredKey::parse(signing_type, record)?);
        }
        let revoked = std::mem::take(&mut rest.revoked);
        Ok(Self {
            next,
            retired,
            // A name that is no key id was never listed, and needs no revocation.
            revoked: revoked.iter().filter_map(|kid| KeyId::new(kid)).collect(),
            rest,
        })
    }

    fn record(&self) -> RingRecord {
        let retired = self.retired.iter().map(|retired| retired.record.clone());
        RingRecord {
            next: self.next.as_ref().map(|next| NextRecord {
                private: next.pair.stored().private.clone(),
                public: next.pair.stored().public.clone(),
                signs_from: next.signs_from,
                // Members that a newer version of the program has written stay in the record.
                unknown: next.unknown.clone(),
            }),
            retired: retired.collect(),
            revoked: self.revoked.iter().map(KeyId::to_string).collect(),
            ..self.rest.clone()
        }
    }
}

impl NextKey {
    /// Creates the next key from a pair not seen before.
    pub(super) fn new(pair: Arc<SigningKeyPair>, signs_from: i64) -> Self {
        Self {
            pair,
            signs_from,
            unknown: Unknown::new(),
        }
    }

    fn parse(signing_type: SigningType, record: NextRecord) -> Result<Self, KeyRingError> {
        let stored = StoredKeyPair {
            private: record.private,
            public: record.public,
        };
        let pair = SigningKeyPair::parse(signing_type, stored).map_err(KeyRingError::Next)?;
        Ok(Self {
            pair: Arc::new(pair),
            signs_from: record.signs_from,
            unknown: record.unknown,
        })
    }
}

impl RetiredKey {
    /// Retires the public half of `pair`, listed until `until`.
    pub(super) fn new(pair: &SigningKeyPair, until: i64) -> Self {
        Self {
            key: pair.verification_key().clone(),
            record: RetiredRecord {
                public: pair.public_key_string().to_owned(),
                until,
                unknown: Unknown::new(),
            },
        }
    }

    fn parse(signing_type: SigningType, record: RetiredRecord) -> Result<Self, KeyRingError> {
        let key =
            VerificationKey::parse(signing_type, &record.public).map_err(KeyRingError::Retired)?;
        Ok(Self { key, record })
    }

    /// Returns the end of the key's listing, in seconds since the epoch.
    pub(crate) fn until(&self) -> i64 {
        self.record.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl KeyRing {
        /// Returns a ring without history.
        pub(crate) fn of(current: Arc<SigningKeyPair>) -> Self {
            Self {
                current,
                metadata: RingMetadata::default(),
            }
        }
    }
}
