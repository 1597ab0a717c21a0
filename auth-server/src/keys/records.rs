//! The keys in the store: the contract's two values and the ring, which are read at one moment and
//! change together.
//!
//! The values in the store decide about its encryption, not the keys of a server: a store in clear stays in
//! clear until `keys reencrypt`, so that the first server with a key takes nothing away from the others; in
//! an encrypted store no value in clear counts. Other records are encrypted as the keys are.

use postern_process::named_enum;
use postern_token::keys::VerificationKey;
use postern_token::keys::signing_type::SigningType;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::ring::{KeyRingError, is_being_encrypted};
use super::{StoredKeyPair, StoredKeys};
use crate::store::at_rest::{AtRest, Decrypted};
use crate::store::envelope_encryption::{EncryptionError, KeyEncryptionKey};
use crate::store::open_store::OpenStore;
use crate::store::{Change, Key, Kind, Outcome, StoreError, Stored, Version};

/// Max attempts of a change. Each retry means a change by another server: only an endlessly changing store
/// reaches this number.
pub(crate) const ATTEMPTS: usize = 64;

named_enum! {
    /// The records of the keys.
    pub(crate) enum Entry {
        Private = "private",
        Public = "public",
        Ring = "ring",
    }
}

impl Entry {
    pub(crate) fn key(self) -> Key {
        Key {
            kind: Kind::Installation,
            id: self.name().to_owned(),
        }
    }
}

/// One value for each [`Entry`], in its order.
type Values<T> = [Option<T>; 3];

/// The keys as they were read.
#[derive(Debug)]
pub(crate) struct HeldKeys {
    pub(crate) keys: StoredKeys,
    versions: Values<Version>,
    /// The state of the store, or before the first value the state of a new store.
    pub(crate) at_rest: AtRest,
}

impl HeldKeys {
    /// Returns the changes that expect the keys as they were read.
    pub(crate) fn checks(&self) -> Vec<Change> {
        let versions = Entry::ALL.into_iter().zip(self.versions.clone());
        let check = |(entry, expected): (Entry, _)| Change::Check {
            key: entry.key(),
            expected,
        };
        versions.map(check).collect()
    }
}

impl OpenStore {
    pub(crate) async fn read_keys(&self) -> Result<HeldKeys, StoreError> {
        let held: Values<Stored> = self
            .call()
            .await?
            .read(&Entry::ALL.map(Entry::key))
            .await?
            .try_into()
            .map_err(|_| StoreError::Unavailable(format!("{}: cut off", self.location)))?;
        let versions = held
            .each_ref()
            .map(|held| Some(held.as_ref()?.version.clone()));
        let [private, public, ring] = held.map(|held| Some(held?.value));
        let ring = match ring {
            Some(text) => Some(self.open_key(Entry::Ring, &text)?),
            None => None,
        };
        // One half of a pair alone does not count.
        let halves = match private.zip(public) {
            Some((private, public)) => Some((
                self.open_key(Entry::Private, &private)?,
                self.open_key(Entry::Public, &public)?,
            )),
            None => None,
        };
        let private = halves.as_ref().map(|(private, _)| private);
        let stated = self.at_rest_of(private, ring.as_ref())?;
        // Other records are opened and sealed by what these values show.
        if let Some(at_rest) = &stated {
            self.take_over(at_rest);
        }
        Ok(HeldKeys {
            keys: StoredKeys {
                pair: halves.map(|(private, public)| StoredKeyPair {
                    private: private.text,
                    public: public.text,
                }),
                ring: ring.map(|ring| ring.text),
            },
            versions,
            at_rest: stated.unwrap_or_else(|| self.encryption.at_rest()),
        })
    }

    /// Stores `new` if `held` is still what the store has; else returns `false` and changes nothing.
    pub(crate) async fn write_keys(
        &self,
        held: &HeldKeys,
        new: &StoredKeys,
    ) -> Result<bool, StoreError> {
        self.rewrite_keys(&held.at_rest, held, new).await
    }

    /// Stores the keys, encrypted as `at_rest` says. All values are written: a commit expects each as read.
    pub(crate) async fn rewrite_keys(
        &self,
        at_rest: &AtRest,
        held: &HeldKeys,
        new: &StoredKeys,
    ) -> Result<bool, StoreError> {
        let under = self
            .encryption
            .key_of(at_rest)
            .map_err(|error| self.not_open(Entry::Private, &error))?;
        let mut changes = Vec::new();
        let values = values(new).into_iter().zip(held.versions.clone());
        for (entry, (text, expected)) in Entry::ALL.into_iter().zip(values) {
            // No value is ever removed: each change counts a generation, so the ring stays from the first on.
            let Some(text) = text else { continue };
            changes.push(Change::Put {
                key: entry.key(),
                expected,
                value: self.seal_key(entry, text, under)?,
                ends: None,
            });
        }
        let is_done = self.call().await?.commit(changes).await? == Outcome::Committed;
        // Not after a conflict: another server may have left the store in another state.
        if is_done {
            self.take_over(at_rest);
        }
        Ok(is_done)
    }

    /// Encrypts a value, unless the store is in clear or the value certainly public: any other string may be
    /// a shared secret.
    fn seal_key(
        &self,
        entry: Entry,
        text: &str,
        under: Option<&KeyEncryptionKey>,
    ) -> Result<Zeroizing<String>, StoreError> {
        match under {
            Some(under) if entry != Entry::Public || !is_public(text) => under
                .seal(&entry.key(), text)
                .map_err(|error| self.not_open(entry, &error)),
            _ => Ok(Zeroizing::new(text.to_owned())),
        }
    }

    fn open_key(&self, entry: Entry, text: &Zeroizing<String>) -> Result<Decrypted, StoreError> {
        let opened = self.encryption.open(&entry.key(), text);
        match &opened {
            // Other programs of the contract read the public key, so it is never encrypted.
            Err(EncryptionError::InClear) if entry == Entry::Public && is_public(text) => {
                return Ok(Decrypted {
                    text: text.clone(),
                    under: None,
                });
            }
            // Its key is missing here, but the store is encrypted: what this server writes later must not
            // be in clear.
            Err(EncryptionError::NoKey { needed, .. }) => {
                self.encryption
                    .take_over(&AtRest::Encrypted(needed.clone()));
            }
            _ => {}
        }
        opened.map_err(|error| self.not_open(entry, &error))
    }

    /// Returns the state of the store that these values show; `None` without any.
    ///
    /// # Errors
    /// For a value in clear in an encrypted store: its writer had no key. A server would write the keys in
    /// memory back in clear, unless it is to decrypt the store.
    fn at_rest_of(
        &self,
        private: Option<&Decrypted>,
        ring: Option<&Decrypted>,
    ) -> Result<Option<AtRest>, StoreError> {
        let mut key = None;
        let mut in_clear = None;
        // The private key last: an error names it before the ring.
        for (entry, value) in [(Entry::Ring, ring), (Entry::Private, private)] {
            match value {
                Some(Decrypted {
                    under: Some(id), ..
                }) => key = Some(id),
                Some(Decrypted { under: None, .. }) => in_clear = Some(entry),
                None => {}
            }
        }
        let was_encrypted = match self.encryption.known_at_rest() {
            Some(known) => known.key().is_some(),
            None => false,
        };
        // Without a key of its own this server is to decrypt the store, and expects such values.
        let stays_encrypted = was_encrypted && self.encryption.current.is_some();
        match (key, in_clear) {
            // A value in clear stands beside an encrypted one, or in a store that was encrypted at the last
            // read.
            (_, Some(entry)) if key.is_some() || stays_encrypted => {
                Err(self.not_open(entry, &EncryptionError::Planted))
            }
            (Some(id), _) if is_being_encrypted(ring.map(|ring| &ring.text)) => {
                Ok(Some(AtRest::BeingEncrypted(id.clone())))
            }
            (Some(id), _) => Ok(Some(AtRest::Encrypted(id.clone()))),
            (None, Some(_)) => Ok(Some(AtRest::InClear)),
            (None, None) => Ok(None),
        }
    }

    fn not_open(&self, entry: Entry, error: &EncryptionError) -> StoreError {
        self.unusable(&entry.key(), &error.to_string())
    }

    pub(crate) fn unusable_keys(&self, error: &KeyRingError) -> StoreError {
        StoreError::Unusable(format!("{}: {error}", self.location))
    }

    /// Takes over the state of the store, and logs a changed state if there is a key-encryption key.
    fn take_over(&self, at_rest: &AtRest) {
        let is_another = self.encryption.take_over(at_rest);
        // A server without any key has nothing to compare the store with.
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

pub(crate) fn keep_changing() -> StoreError {
    StoreError::Unavailable("the stored keys keep changing".to_owned())
}

/// Returns the values of the keys, in clear.
fn values(keys: &StoredKeys) -> Values<&str> {
    let pair = keys.pair.as_ref();
    [
        pair.map(|pair| pair.private.as_str()),
        pair.map(|pair| pair.public.as_str()),
        keys.ring.as_ref().map(|ring| ring.as_str()),
    ]
}

fn is_public(text: &str) -> bool {
    [SigningType::Rsa, SigningType::Ecdsa]
        .into_iter()
        .any(|asymmetric| VerificationKey::parse(asymmetric, text).is_ok())
}

#[cfg(test)]
mod tests;
