//! A store wrapper that encrypts private values on write and decrypts them on read.
//!
//! No two encryptions are equal, so plain keys are compared here, and the store's atomic step
//! compares the strings that were read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use async_trait::async_trait;
use tracing::{info, warn};
use wire::keys::signing_type::SigningType;
use wire::keys::{KeyId, VerificationKey};

use super::{Entry, KeyStore, StoreError};
use crate::keys::{Half, StoredKeyPair, StoredKeys, StoredRing};
use crate::store::envelope_encryption::{EncryptionError, EncryptionState, KeyEncryption, Slot};

/// Each retry means that another server re-encrypted the same keys meanwhile.
const ATTEMPTS: usize = 8;
/// Stands in place of a kid: a ring holds several keys.
const NO_KID: &str = "-";

pub(super) struct EncryptedStore {
    store: Arc<dyn KeyStore>,
    encryption: Arc<KeyEncryption>,
    /// The logged state, as numbered by [`state`], to log each change once.
    logged_state: AtomicU8,
}

impl fmt::Debug for EncryptedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl EncryptedStore {
    pub(super) fn new(store: Arc<dyn KeyStore>, encryption: Arc<KeyEncryption>) -> Self {
        Self {
            store,
            encryption,
            logged_state: AtomicU8::new(0),
        }
    }

    fn seal(&self, keys: &StoredKeys) -> Result<StoredKeys, StoreError> {
        let pair = keys.pair.as_ref().map(|pair| self.seal_pair(pair));
        let ring = keys.ring.as_ref().map(|StoredRing(ring)| {
            let sealed = self.encryption.seal(Slot::Ring, NO_KID, ring);
            sealed
                .map(|sealed| StoredRing(sealed.unwrap_or_else(|| ring.clone())))
                .map_err(|error| self.unusable(Entry::Ring, &error))
        });
        Ok(StoredKeys {
            pair: pair.transpose()?,
            ring: ring.transpose()?,
        })
    }

    fn seal_pair(&self, pair: &StoredKeyPair) -> Result<StoredKeyPair, StoreError> {
        let id = kid_of(pair);
        let kid = id.as_ref().map_or(NO_KID, KeyId::as_str);
        let seal = |slot, text| {
            let sealed = self.encryption.seal(slot, kid, text);
            sealed.map_err(|error| self.unusable(Entry::KeyPair, &error))
        };
        let private = seal(Slot::Private, &pair.private)?;
        // A string that is not certainly public is encrypted as a shared secret.
        let public = if is_public(&pair.public) {
            None
        } else {
            seal(Slot::Public, &pair.public)?
        };
        Ok(StoredKeyPair {
            private: private.unwrap_or_else(|| pair.private.clone()),
            public: public.unwrap_or_else(|| pair.public.clone()),
        })
    }

    fn open(&self, held: &StoredKeys) -> Result<StoredKeys, StoreError> {
        let pair = held.pair.as_ref().map(|pair| self.open_pair(pair));
        let pair = pair.transpose()?;
        let ring = held.ring.as_ref().map(|StoredRing(ring)| {
            self.encryption
                .open(Slot::Ring, ring)
                .map(|opened| StoredRing(opened.text))
                .map_err(|error| self.unusable(Entry::Ring, &error))
        });
        Ok(StoredKeys {
            pair,
            ring: ring.transpose()?,
        })
    }

    fn open_pair(&self, pair: &StoredKeyPair) -> Result<StoredKeyPair, StoreError> {
        let open = |half, slot, text: &str| {
            let opened = self.encryption.open(slot, text);
            opened.map_err(|error| self.unusable(Entry::Half(half), &error))
        };
        let private = open(Half::Private, Slot::Private, &pair.private)?;
        let public = if is_public(&pair.public) {
            pair.public.clone()
        } else {
            let public = open(Half::Public, Slot::Public, &pair.public)?;
            if public.kid != private.kid {
                return Err(self.unusable(Entry::KeyPair, &EncryptionError::Forged));
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
            return Err(self.unusable(Entry::KeyPair, &EncryptionError::Forged));
        }
        self.log_state(private.at_rest);
        Ok(opened)
    }

    fn unusable(&self, entry: Entry, error: &EncryptionError) -> StoreError {
        StoreError::Unusable(format!("{}: {error}", self.store.location(entry)))
    }

    /// Logs the state of the stored values; nothing without a key-encryption key, when plaintext is
    /// expected.
    fn log_state(&self, at_rest: EncryptionState) {
        let logged = self.logged_state.swap(number(at_rest), Ordering::Relaxed);
        let Some(current) = &self.encryption.current else {
            return;
        };
        let key = current.id();
        match at_rest {
            _ if logged == number(at_rest) => {}
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

fn number(at_rest: EncryptionState) -> u8 {
    match at_rest {
        EncryptionState::Encrypted => 1,
        EncryptionState::Outdated => 2,
        EncryptionState::InClear => 3,
    }
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

#[async_trait]
impl KeyStore for EncryptedStore {
    async fn load(&self) -> Result<StoredKeys, StoreError> {
        self.open(&self.store.load().await?)
    }

    async fn compare_and_swap(
        &self,
        expected: &StoredKeys,
        new: &StoredKeys,
    ) -> Result<StoredKeys, StoreError> {
        for _ in 0..ATTEMPTS {
            let read = self.store.load().await?;
            let held = self.open(&read)?;
            if held != *expected {
                return Ok(held);
            }
            let sealed = self.seal(new)?;
            let after = self.store.compare_and_swap(&read, &sealed).await?;
            if after == sealed {
                return Ok(new.clone());
            }
            let held = self.open(&after)?;
            if held != *expected {
                return Ok(held);
            }
        }
        Err(StoreError::Unavailable(
            "the stored keys keep changing".to_owned(),
        ))
    }

    fn unfinished(&self) -> Option<StoreError> {
        self.store.unfinished()
    }

    async fn now(&self) -> Result<Option<i64>, StoreError> {
        self.store.now().await
    }

    fn location(&self, entry: Entry) -> String {
        self.store.location(entry)
    }
}

#[cfg(test)]
mod tests;
