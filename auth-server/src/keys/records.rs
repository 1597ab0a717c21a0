//! The keys in the store: the contract's two values and the ring, which are read at one moment and
//! change together.
//!
//! What the store holds decides about its encryption, not what a server has: a store in clear stays so
//! until `keys reencrypt`, so that the first server with a key takes nothing away from the others; in an
//! encrypted store no value in clear counts. Other records follow what stands here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{info, warn};
use wire::keys::signing_type::SigningType;
use wire::keys::{KeyId, VerificationKey};
use zeroize::Zeroizing;

use super::ring::{KeyRingError, is_being_encrypted};
use super::{StoredKeyPair, StoredKeys, StoredText};
use crate::store::at_rest::AtRest;
use crate::store::envelope_encryption::{Decrypted, EncryptionError, KeyEncryption, Slot};
use crate::store::location::StoreLocation;
use crate::store::{Change, Key, Kind, Outcome, Store, StoreError, Stored, Version};

/// Each retry means a change by another server: only an endlessly changing store reaches this.
pub(crate) const ATTEMPTS: usize = 64;
/// Stands in place of a kid: a ring holds several keys.
const NO_KID: &str = "-";

/// The records, in the order of [`Values`].
const ENTRIES: [Entry; 3] = [Entry::Private, Entry::Public, Entry::Ring];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Private,
    Public,
    Ring,
}

impl Entry {
    pub(crate) fn key(self) -> Key {
        let id = match self {
            Self::Private => "private",
            Self::Public => "public",
            Self::Ring => "ring",
        };
        Key {
            kind: Kind::Installation,
            id: id.to_owned(),
        }
    }
}

type Values<T> = [Option<T>; 3];

/// The keys as they were read.
#[derive(Debug)]
pub(crate) struct HeldKeys {
    pub(crate) keys: StoredKeys,
    versions: Values<Version>,
    /// The state of the store, or of a new one before the first value.
    pub(crate) at_rest: AtRest,
}

#[derive(Debug)]
pub(crate) struct KeyRecords {
    store: Arc<dyn Store>,
    encryption: Arc<KeyEncryption>,
    /// The store, for an operator.
    location: String,
    lacks_key: AtomicBool,
}

impl StoreLocation {
    /// Returns the keys in the opened store.
    pub(crate) fn keys(&self, store: &Arc<dyn Store>) -> KeyRecords {
        KeyRecords::new(Arc::clone(store), self.encryption(), self.to_string())
    }
}

impl KeyRecords {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        encryption: Arc<KeyEncryption>,
        location: String,
    ) -> Self {
        Self {
            store,
            encryption,
            location,
            lacks_key: AtomicBool::new(false),
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Names the store, without secrets.
    pub(crate) fn location(&self) -> &str {
        &self.location
    }

    /// Returns true if the values that were read last need a key-encryption key that is not
    /// configured.
    pub(crate) fn lacks_key(&self) -> bool {
        self.lacks_key.load(Ordering::Relaxed)
    }

    pub(crate) async fn read(&self) -> Result<HeldKeys, StoreError> {
        let read = self.store.read(&ENTRIES.map(Entry::key)).await?;
        let incomplete = |_| StoreError::Unavailable(format!("{}: cut off", self.location));
        let held: Values<Stored> = read.try_into().map_err(incomplete)?;
        let versions = held
            .each_ref()
            .map(|held| Some(held.as_ref()?.version.clone()));
        let [private, public, ring] = held.map(|held| Some(held?.value));
        let (ring_under, ring) = self.open_text(Entry::Ring, Slot::Ring, ring)?.unzip();
        let pair = private.zip(public);
        let pair = pair.map(|(private, public)| self.open_pair(&StoredKeyPair { private, public }));
        let (pair_under, pair) = pair.transpose()?.unzip();
        let keys = StoredKeys { pair, ring };
        let found = [(Entry::Private, pair_under), (Entry::Ring, ring_under)];
        let at_rest = match self.key_of(found)? {
            None => self.encryption.at_rest(),
            Some(key) => {
                let at_rest = match key {
                    None => AtRest::InClear,
                    Some(id) if is_being_encrypted(keys.ring.as_ref()) => {
                        AtRest::BeingEncrypted(id)
                    }
                    Some(id) => AtRest::Encrypted(id),
                };
                self.check_not_stripped(&at_rest)?;
                self.take_over(&at_rest);
                at_rest
            }
        };
        Ok(HeldKeys {
            keys,
            versions,
            at_rest,
        })
    }

    /// Stores `new` if nothing of `held` was changed; returns `false` and changes nothing otherwise.
    pub(crate) async fn commit(
        &self,
        held: &HeldKeys,
        new: &StoredKeys,
    ) -> Result<bool, StoreError> {
        self.commit_as(&held.at_rest, held, new, false).await
    }

    /// Writes `new` in place of all values of `held`, as `at_rest` says.
    pub(crate) async fn rewrite(
        &self,
        at_rest: &AtRest,
        held: &HeldKeys,
        new: &StoredKeys,
    ) -> Result<bool, StoreError> {
        let is_done = self.commit_as(at_rest, held, new, true).await?;
        if is_done {
            self.take_over(at_rest);
        }
        Ok(is_done)
    }

    async fn commit_as(
        &self,
        at_rest: &AtRest,
        held: &HeldKeys,
        new: &StoredKeys,
        is_anew: bool,
    ) -> Result<bool, StoreError> {
        let sealed = self.seal(at_rest, new)?;
        let (former, new) = (values(&held.keys), values(new));
        let mut changes = Vec::new();
        let parts = sealed.into_iter().zip(&held.versions).zip(former).zip(new);
        for (entry, (((sealed, version), former), new)) in ENTRIES.into_iter().zip(parts) {
            let (key, expected) = (entry.key(), version.clone());
            changes.push(match (sealed, expected) {
                (Some(value), expected) if is_anew || former != new => Change::Put {
                    key,
                    expected,
                    value,
                    ends: None,
                },
                (None, Some(expected)) if former.is_some() => Change::Delete { key, expected },
                (_, expected) => Change::Check { key, expected },
            });
        }
        Ok(self.store.commit(changes).await? == Outcome::Committed)
    }

    fn seal(
        &self,
        at_rest: &AtRest,
        keys: &StoredKeys,
    ) -> Result<Values<Zeroizing<String>>, StoreError> {
        let key = self.encryption.key_of(at_rest);
        let key = key.map_err(|error| self.not_open(Entry::Private, &error))?;
        let pair = keys.pair.as_ref();
        let kid = pair.and_then(kid_of);
        let kid = kid.as_ref().map_or(NO_KID, KeyId::as_str);
        let seal = |entry, slot, kid, text: &Zeroizing<String>| match key {
            None => Ok(text.clone()),
            Some(key) => key
                .seal(slot, kid, text)
                .map_err(|error| self.not_open(entry, &error)),
        };
        let private = pair.map(|pair| seal(Entry::Private, Slot::Private, kid, &pair.private));
        // A string that is not certainly public is encrypted as a shared secret.
        let public = pair.map(|pair| match is_public(&pair.public) {
            true => Ok(pair.public.clone()),
            false => seal(Entry::Public, Slot::Public, kid, &pair.public),
        });
        let ring = keys.ring.as_ref();
        let ring = ring.map(|StoredText(text)| seal(Entry::Ring, Slot::Ring, NO_KID, text));
        Ok([private.transpose()?, public.transpose()?, ring.transpose()?])
    }

    fn open(&self, entry: Entry, slot: Slot, text: &str) -> Result<Decrypted, StoreError> {
        let opened = self.encryption.open(slot, text);
        let lacks_key = matches!(opened, Err(EncryptionError::NoKey { .. }));
        self.lacks_key.store(lacks_key, Ordering::Relaxed);
        if let Err(EncryptionError::NoKey { needed, .. }) = &opened {
            // Not in clear, should the store lose its content next.
            self.encryption
                .take_over(&AtRest::Encrypted(needed.clone()));
        }
        opened.map_err(|error| self.not_open(entry, &error))
    }

    fn open_text(
        &self,
        entry: Entry,
        slot: Slot,
        text: Option<Zeroizing<String>>,
    ) -> Result<Option<(Option<String>, StoredText)>, StoreError> {
        let opened = text.map(|text| self.open(entry, slot, &text)).transpose()?;
        Ok(opened.map(|opened| (opened.under, StoredText(opened.text))))
    }

    fn open_pair(
        &self,
        pair: &StoredKeyPair,
    ) -> Result<(Option<String>, StoredKeyPair), StoreError> {
        let private = self.open(Entry::Private, Slot::Private, &pair.private)?;
        let public = if is_public(&pair.public) {
            pair.public.clone()
        } else {
            let public = self.open(Entry::Public, Slot::Public, &pair.public)?;
            if public.kid != private.kid {
                return Err(self.not_open(Entry::Public, &EncryptionError::Forged));
            }
            public.text
        };
        let opened = StoredKeyPair {
            private: private.text,
            public,
        };
        let kid = kid_of(&opened);
        let expected = kid.as_ref().map_or(NO_KID, KeyId::as_str);
        if private.kid.is_some_and(|kid| kid != expected) {
            return Err(self.not_open(Entry::Private, &EncryptionError::Forged));
        }
        Ok((private.under, opened))
    }

    /// Returns the id of the key of an encrypted store, in which a value in clear is an error: its writer
    /// had no key. `None` before the first value.
    fn key_of(
        &self,
        found: [(Entry, Option<Option<String>>); 2],
    ) -> Result<Option<Option<String>>, StoreError> {
        let found = || {
            found
                .iter()
                .filter_map(|(entry, under)| Some((entry, under.as_ref()?)))
        };
        let key = found().find_map(|(_, under)| under.clone());
        match found().find(|(_, under)| under.is_none()) {
            Some((entry, _)) if key.is_some() => {
                Err(self.not_open(*entry, &EncryptionError::Planted))
            }
            _ => Ok(found().next().map(|_| key)),
        }
    }

    fn not_open(&self, entry: Entry, error: &EncryptionError) -> StoreError {
        StoreError::Unusable(format!("{}: {error}", self.store.describe(&entry.key())))
    }

    /// Checks that a store which was encrypted is not in clear now, unless this server is to decrypt it: a
    /// writer without a key would get the keys in memory written back in clear.
    fn check_not_stripped(&self, found: &AtRest) -> Result<(), StoreError> {
        let known = self.encryption.known_at_rest();
        let was_encrypted = known.is_some_and(|known| known.key().is_some());
        let encrypts = self.encryption.current.is_some();
        match *found == AtRest::InClear && was_encrypted && encrypts {
            true => Err(self.not_open(Entry::Private, &EncryptionError::Planted)),
            false => Ok(()),
        }
    }

    pub(crate) fn unusable(&self, error: &KeyRingError) -> StoreError {
        StoreError::Unusable(format!("{}: {error}", self.location))
    }

    /// Takes over the state of the store, and logs another one where there is a key-encryption key.
    fn take_over(&self, at_rest: &AtRest) {
        let is_another = self.encryption.take_over(at_rest);
        if !is_another || self.encryption.keys().next().is_none() {
            return;
        }
        let mine = self.encryption.current.as_ref().map(|key| key.id());
        match at_rest {
            AtRest::Encrypted(key) if mine == Some(key) => info!(key, "the store is encrypted"),
            AtRest::InClear if mine.is_none() => info!("the store is in clear"),
            AtRest::BeingEncrypted(_) => warn!(
                "the store is being encrypted, and values in clear count until auth-server keys reencrypt \
                 runs again"
            ),
            AtRest::InClear | AtRest::Encrypted(_) => warn!(
                "the configured key-encryption key does not encrypt the store: auth-server keys reencrypt changes \
                 that, once every server has it"
            ),
        }
    }
}

pub(super) fn keep_changing() -> StoreError {
    StoreError::Unavailable("the stored keys keep changing".to_owned())
}

/// Returns the values in clear.
fn values(keys: &StoredKeys) -> Values<&str> {
    let pair = keys.pair.as_ref();
    [
        pair.map(|pair| pair.private.as_str()),
        pair.map(|pair| pair.public.as_str()),
        keys.ring.as_ref().map(StoredText::as_str),
    ]
}

fn is_public(text: &str) -> bool {
    [SigningType::Rsa, SigningType::Ecdsa]
        .into_iter()
        .any(|asymmetric| VerificationKey::parse(asymmetric, text).is_ok())
}

/// Returns `None` if it is no key.
fn kid_of(pair: &StoredKeyPair) -> Option<KeyId> {
    [SigningType::Rsa, SigningType::Ecdsa, SigningType::Hmac]
        .into_iter()
        .find_map(|signing_type| VerificationKey::parse(signing_type, &pair.public).ok())
        .map(|key| key.id().clone())
}

#[cfg(test)]
mod tests;
