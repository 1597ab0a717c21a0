//! The keys in the store: the contract's two values and the ring, which are read at one moment and
//! change together.
//!
//! Private values are encrypted where there is a key-encryption key. What the store holds decides, not
//! what a server has: a store in clear stays so until `keys reencrypt`, so that the first server with a
//! key takes nothing away from the others; in an encrypted store no value in clear counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tracing::{info, warn};
use wire::keys::signing_type::SigningType;
use wire::keys::{KeyId, VerificationKey};
use zeroize::Zeroizing;

use super::ring::KeyRingError;
use super::{Half, StoredKeyPair, StoredKeys, StoredText};
use crate::store::envelope_encryption::{
    Decrypted, EncryptionError, EncryptionState, KeyEncryption, KeyEncryptionKey, Slot,
};
use crate::store::{Change, Key, Kind, Outcome, Store, StoreError, Stored, Version};

/// Each retry means a change by another server: only an endlessly changing store reaches this.
pub(super) const ATTEMPTS: usize = 64;
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
    /// `None` before the first value.
    is_encrypted: Option<bool>,
}

impl HeldKeys {
    pub(crate) fn is_encrypted(&self) -> bool {
        self.is_encrypted == Some(true)
    }
}

#[derive(Debug)]
pub(crate) struct KeyRecords {
    store: Arc<dyn Store>,
    encryption: Arc<KeyEncryption>,
    /// The store, for an operator.
    location: String,
    /// Each change is logged once.
    logged_state: Mutex<Option<EncryptionState>>,
    lacks_key: AtomicBool,
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
            logged_state: Mutex::default(),
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
        let (ring_at_rest, ring) = self.open_text(Entry::Ring, Slot::Ring, ring)?.unzip();
        let pair = private.zip(public);
        let pair = pair.map(|(private, public)| self.open_pair(&StoredKeyPair { private, public }));
        let (pair_at_rest, pair) = pair.transpose()?.unzip();
        let keys = StoredKeys { pair, ring };
        let found = [(Entry::Private, pair_at_rest), (Entry::Ring, ring_at_rest)];
        let is_encrypted = self.is_encrypted(found)?;
        Ok(HeldKeys {
            keys,
            versions,
            is_encrypted,
        })
    }

    /// Stores `new` if nothing of `held` was changed; returns `false` and changes nothing otherwise.
    pub(crate) async fn commit(
        &self,
        held: &HeldKeys,
        new: &StoredKeys,
    ) -> Result<bool, StoreError> {
        let key = match held.is_encrypted {
            None => self.encryption.current.as_ref(),
            Some(false) => None,
            Some(true) => self.encryption.any(),
        };
        self.commit_under(key, held, new, false).await
    }

    /// Writes every value again, and returns the former ones: encrypted with the current key-encryption key, in clear without one.
    pub(crate) async fn reencrypt(&self) -> Result<HeldKeys, StoreError> {
        let key = self.encryption.current.as_ref();
        for _ in 0..ATTEMPTS {
            let held = self.read().await?;
            if self.commit_under(key, &held, &held.keys, true).await? {
                return Ok(held);
            }
        }
        Err(keep_changing())
    }

    async fn commit_under(
        &self,
        key: Option<&KeyEncryptionKey>,
        held: &HeldKeys,
        new: &StoredKeys,
        is_anew: bool,
    ) -> Result<bool, StoreError> {
        let sealed = self.seal(key, new)?;
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
        key: Option<&KeyEncryptionKey>,
        keys: &StoredKeys,
    ) -> Result<Values<Zeroizing<String>>, StoreError> {
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
        opened.map_err(|error| self.not_open(entry, &error))
    }

    fn open_text(
        &self,
        entry: Entry,
        slot: Slot,
        text: Option<Zeroizing<String>>,
    ) -> Result<Option<(EncryptionState, StoredText)>, StoreError> {
        let opened = text.map(|text| self.open(entry, slot, &text)).transpose()?;
        Ok(opened.map(|opened| (opened.at_rest, StoredText(opened.text))))
    }

    fn open_pair(
        &self,
        pair: &StoredKeyPair,
    ) -> Result<(EncryptionState, StoredKeyPair), StoreError> {
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
        self.log_state(private.at_rest);
        Ok((private.at_rest, opened))
    }

    /// Returns true for an encrypted store, in which a value in clear is an error: its writer had no
    /// key.
    fn is_encrypted(
        &self,
        found: [(Entry, Option<EncryptionState>); 2],
    ) -> Result<Option<bool>, StoreError> {
        let mut states = found.iter().filter_map(|(_, at_rest)| *at_rest).peekable();
        if states.peek().is_none() {
            return Ok(None);
        }
        if states.all(|at_rest| at_rest == EncryptionState::InClear) {
            return Ok(Some(false));
        }
        let in_clear = |(_, at_rest): &&_| *at_rest == Some(EncryptionState::InClear);
        match found.iter().find(in_clear) {
            Some((entry, _)) => Err(self.not_open(*entry, &EncryptionError::Planted)),
            None => Ok(Some(true)),
        }
    }

    fn not_open(&self, entry: Entry, error: &EncryptionError) -> StoreError {
        StoreError::Unusable(format!("{}: {error}", self.store.describe(&entry.key())))
    }

    /// Returns an error that locates the faulty value.
    pub(crate) fn unusable(&self, error: &KeyRingError) -> StoreError {
        let describe = |entry: Entry| self.store.describe(&entry.key());
        let location = match error {
            KeyRingError::Pair(error) => match error.half() {
                Some(Half::Private) => describe(Entry::Private),
                Some(Half::Public) => describe(Entry::Public),
                None => format!(
                    "{} and {}",
                    describe(Entry::Private),
                    describe(Entry::Public)
                ),
            },
            KeyRingError::MalformedRing { .. }
            | KeyRingError::NewerRing(_)
            | KeyRingError::Next(_)
            | KeyRingError::Retired(_) => describe(Entry::Ring),
        };
        StoreError::Unusable(format!("{location}: {error}"))
    }

    /// Logs the state of the stored values; nothing without a key-encryption key, when plaintext is
    /// expected.
    fn log_state(&self, at_rest: EncryptionState) {
        let logged = self.logged_state.lock().replace(at_rest);
        let Some(current) = &self.encryption.current else {
            return;
        };
        let key = current.id();
        match at_rest {
            _ if logged == Some(at_rest) => {}
            EncryptionState::InClear => warn!(
                "the private key is stored in clear; auth-server keys reencrypt encrypts it, once \
                 every server has the key-encryption key"
            ),
            EncryptionState::Outdated => warn!(
                "the private key is encrypted with the previous key-encryption key; auth-server \
                 keys reencrypt encrypts it with {key}, once every server has that one"
            ),
            EncryptionState::Encrypted => info!(key, "the private key is stored encrypted"),
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
