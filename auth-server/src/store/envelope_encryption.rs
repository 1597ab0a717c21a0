//! Encryption of private values at rest: each string is encrypted with the key-encryption key,
//! bound to its slot and its key.
//!
//! `postern-encrypted:1:ENCRYPTION-KEY:KID:DATA`, where DATA is the base64url of nonce, AES-256-GCM
//! ciphertext and tag. Everything before DATA and the name of the slot are additional data, so a
//! moved or renamed value does not decrypt.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{Context, SHA256};
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, Engine};
use runtime::logs::sanitize::LogText;
use zeroize::Zeroizing;

use super::record_mac::RecordKey;
use super::{Key, Kind};

/// No plaintext value (PEM, base64, JSON) starts like this.
const MARK: &str = "postern-encrypted:";
const VERSION: &str = "1";
const KEY_BYTES: usize = 32;
/// Length of the digest that identifies a key to operators, who have a handful at most.
const ID_BYTES: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Private,
    /// Encrypted only if it is a shared secret.
    Public,
    Ring,
    /// A record of this kind, bound to its id in place of a key.
    Record(Kind),
}

impl Slot {
    fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Public => "public",
            Self::Ring => "ring",
            Self::Record(kind) => kind.name(),
        }
    }
}

/// Error for an invalid key-encryption key, without its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 32 random bytes in base64 or hex, such as openssl rand -base64 32 prints")]
pub(crate) struct EncryptionKeyError;

pub(crate) struct KeyEncryptionKey {
    /// A digest; the key cannot be derived from it.
    id: String,
    key: RandomizedNonceKey,
    /// Derived from the key.
    records: RecordKey,
}

impl fmt::Debug for KeyEncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyEncryptionKey").field(&self.id).finish()
    }
}

impl KeyEncryptionKey {
    /// Parses 32 bytes in hex or base64.
    ///
    /// # Errors
    /// For any other text, and for a placeholder: 32 equal bytes.
    pub(crate) fn parse(text: &str) -> Result<Self, EncryptionKeyError> {
        let bytes = decode(text.trim()).ok_or(EncryptionKeyError)?;
        let is_random = bytes.iter().any(|byte| Some(byte) != bytes.first());
        if bytes.len() != KEY_BYTES || !is_random {
            return Err(EncryptionKeyError);
        }
        let mut digest = Context::new(&SHA256);
        digest.update(b"postern key-encryption key");
        digest.update(&bytes);
        let named = digest.finish();
        Ok(Self {
            id: URL_SAFE_NO_PAD.encode(named.as_ref().get(..ID_BYTES).unwrap_or_default()),
            key: RandomizedNonceKey::new(&AES_256_GCM, &bytes).map_err(|_| EncryptionKeyError)?,
            records: RecordKey::derive(&bytes).map_err(|_| EncryptionKeyError)?,
        })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn records(&self) -> &RecordKey {
        &self.records
    }

    pub(crate) fn seal(
        &self,
        slot: Slot,
        kid: &str,
        text: &str,
    ) -> Result<Zeroizing<String>, EncryptionError> {
        let head = format!("{MARK}{VERSION}:{}:{kid}:", self.id);
        let mut bytes = Zeroizing::new(text.as_bytes().to_vec());
        let (nonce, tag) = self
            .key
            .seal_in_place_separate_tag(additional(&head, slot), &mut bytes)
            .map_err(|_| EncryptionError::Failed)?;
        let data = [nonce.as_ref().as_slice(), bytes.as_slice(), tag.as_ref()].concat();
        Ok(Zeroizing::new(head + &URL_SAFE_NO_PAD.encode(data)))
    }
}

/// Decodes hex, or base64 in either alphabet, padded or not.
fn decode(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let bytes = if text.len() == 2 * KEY_BYTES {
        let digit = |at| {
            text.get(at..at + 2)
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
        };
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digits = (0..text.len()).step_by(2).map(digit);
        is_hex.then(|| digits.collect()).flatten()
    } else {
        let lenient =
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        [alphabet::STANDARD, alphabet::URL_SAFE]
            .into_iter()
            .find_map(|alphabet| GeneralPurpose::new(&alphabet, lenient).decode(text).ok())
    };
    bytes.map(Zeroizing::new)
}

/// Encryption error. The texts hold no part of the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EncryptionError {
    #[error(
        "encrypted with the key-encryption key {needed}, and {}",
        configured.as_ref().map_or_else(
            || "none is configured (--key-encryption-key-file)".to_owned(),
            |ids| format!("what is configured is {ids}")
        )
    )]
    NoKey {
        needed: String,
        configured: Option<String>,
    },
    #[error("encrypted for another place or key, or changed since it was encrypted")]
    Forged,
    #[error("encrypted in a way that this version does not know")]
    Unknown,
    #[error(
        "not encrypted, which --require-encrypted-keys demands; auth-server keys reencrypt without that flag encrypts it"
    )]
    InClear,
    #[error("not encrypted, though there is a key-encryption key")]
    RecordInClear,
    #[error("not encrypted, though other values of this store are: who wrote it had no key")]
    Planted,
    #[error("could not be encrypted")]
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EncryptionState {
    Encrypted,
    /// Encrypted with the previous key.
    Outdated,
    InClear,
}

/// The configured keys.
#[derive(Debug, Default)]
pub(crate) struct KeyEncryption {
    /// Encrypts new values; `None` to write plaintext.
    pub(crate) current: Option<KeyEncryptionKey>,
    /// Decrypts values written before the key was replaced.
    pub(crate) previous: Option<KeyEncryptionKey>,
    /// Rejects private values in plaintext.
    pub(crate) required: bool,
}

pub(crate) struct Decrypted {
    pub(crate) text: Zeroizing<String>,
    /// The key that it was encrypted for.
    pub(crate) kid: Option<String>,
    pub(crate) at_rest: EncryptionState,
}

impl KeyEncryption {
    /// Encrypts with the current key; returns `None` without one.
    pub(crate) fn seal(
        &self,
        slot: Slot,
        kid: &str,
        text: &str,
    ) -> Result<Option<Zeroizing<String>>, EncryptionError> {
        let current = self.current.as_ref();
        current.map(|key| key.seal(slot, kid, text)).transpose()
    }

    /// Returns the key for an encrypted store: the current one, else the previous one.
    pub(crate) fn any(&self) -> Option<&KeyEncryptionKey> {
        self.current.as_ref().or(self.previous.as_ref())
    }

    /// Decrypts; returns plaintext as it is.
    pub(crate) fn open(&self, slot: Slot, text: &str) -> Result<Decrypted, EncryptionError> {
        let Some(rest) = text.strip_prefix(MARK) else {
            return if self.required {
                Err(EncryptionError::InClear)
            } else {
                Ok(Decrypted {
                    text: Zeroizing::new(text.to_owned()),
                    kid: None,
                    at_rest: EncryptionState::InClear,
                })
            };
        };
        let parts: Vec<&str> = rest.split(':').collect();
        let [VERSION, id, kid, data] = parts.as_slice() else {
            return Err(EncryptionError::Unknown);
        };
        let (key, at_rest) = self.key(id)?;
        let head = text.strip_suffix(data).unwrap_or_default();
        Ok(Decrypted {
            text: decrypt(key, additional(head, slot), data).ok_or(EncryptionError::Forged)?,
            kid: Some((*kid).to_owned()),
            at_rest,
        })
    }

    /// Encrypts the value of a record; returns it as it is without a key.
    pub(crate) fn seal_record(
        &self,
        key: &Key,
        text: &str,
    ) -> Result<Zeroizing<String>, EncryptionError> {
        let sealed = self.seal(Slot::Record(key.kind), &key.id, text)?;
        Ok(sealed.unwrap_or_else(|| Zeroizing::new(text.to_owned())))
    }

    /// Decrypts the value of a record. Unlike a signing key, one in clear is not read once there is a
    /// key: who writes to the store could have planted it.
    pub(crate) fn open_record(
        &self,
        key: &Key,
        value: &str,
    ) -> Result<Zeroizing<String>, EncryptionError> {
        if !value.starts_with(MARK) {
            return match self.current {
                Some(_) => Err(EncryptionError::RecordInClear),
                None => Ok(Zeroizing::new(value.to_owned())),
            };
        }
        let opened = self.open(Slot::Record(key.kind), value)?;
        match opened.kid {
            Some(id) if id == key.id => Ok(opened.text),
            _ => Err(EncryptionError::Forged),
        }
    }

    fn key(&self, id: &str) -> Result<(&RandomizedNonceKey, EncryptionState), EncryptionError> {
        let current = self
            .current
            .iter()
            .map(|key| (key, EncryptionState::Encrypted));
        let previous = self
            .previous
            .iter()
            .map(|key| (key, EncryptionState::Outdated));
        let configured: Vec<_> = current.chain(previous).collect();
        if let Some((found, at_rest)) = configured.iter().find(|(key, _)| key.id == id) {
            return Ok((&found.key, *at_rest));
        }
        let ids: Vec<_> = configured.iter().map(|(key, _)| key.id.as_str()).collect();
        Err(EncryptionError::NoKey {
            needed: LogText(id).to_string(),
            configured: (!ids.is_empty()).then(|| ids.join(", ")),
        })
    }
}

fn additional(head: &str, slot: Slot) -> Aad<String> {
    Aad::from(format!("{head}{}", slot.name()))
}

fn decrypt(
    key: &RandomizedNonceKey,
    additional: Aad<String>,
    data: &str,
) -> Option<Zeroizing<String>> {
    let mut data = Zeroizing::new(URL_SAFE_NO_PAD.decode(data).ok()?);
    let (nonce, sealed) = data.split_first_chunk_mut::<NONCE_LEN>()?;
    let nonce = Nonce::from(&*nonce);
    let text = key.open_in_place(nonce, additional, sealed).ok()?;
    std::str::from_utf8(text)
        .ok()
        .map(|text| Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    /// Returns a key per name.
    pub(crate) fn key(name: u8) -> KeyEncryptionKey {
        KeyEncryptionKey::parse(&format!("{name:02x}{}", "5a".repeat(31))).unwrap()
    }

    pub(crate) fn with(current: u8) -> KeyEncryption {
        KeyEncryption {
            current: Some(key(current)),
            ..KeyEncryption::default()
        }
    }

    fn opened(keys: &KeyEncryption, slot: Slot, text: &str) -> Result<String, EncryptionError> {
        keys.open(slot, text).map(|opened| opened.text.to_string())
    }

    #[test]
    fn hex_and_both_base64_are_one_key_and_nothing_else_is_one() {
        let hex = "f0".repeat(31) + "ff";
        let base64 = "8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8P8=";
        let base64url = "8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8P8";
        let id = key_id(&hex);
        for text in [
            base64,
            base64url,
            &hex.to_uppercase(),
            &format!(" {base64}\n"),
        ] {
            assert_eq!(key_id(text), id, "{text}");
        }
        for text in [
            "",
            "hush",
            &hex[1..],
            &"zz".repeat(32),
            &"é".repeat(32),
            &"00".repeat(32),
            &"AAAA".repeat(10),
            &format!("{base64}AAAA"),
        ] {
            let error = KeyEncryptionKey::parse(text).unwrap_err();
            assert_eq!(error, EncryptionKeyError, "{text}");
        }
    }

    fn key_id(text: &str) -> String {
        KeyEncryptionKey::parse(text).unwrap().id().to_owned()
    }

    #[test]
    fn what_is_encrypted_opens_in_its_slot_and_no_two_are_alike() {
        let keys = with(1);
        let seal = || keys.seal(Slot::Private, "kid", "a key").unwrap().unwrap();
        let (one, other) = (seal(), seal());
        assert_ne!(one, other);
        assert!(!one.contains("a key"));
        for sealed in [one, other] {
            let opened = keys.open(Slot::Private, &sealed).unwrap();
            assert_eq!(opened.text.as_str(), "a key");
            assert_eq!(opened.kid.as_deref(), Some("kid"));
            assert_eq!(opened.at_rest, EncryptionState::Encrypted);
        }
    }

    #[test]
    fn what_was_moved_renamed_or_changed_does_not_open() {
        let keys = with(1);
        let sealed = keys.seal(Slot::Private, "kid", "a key").unwrap().unwrap();
        for (slot, text) in [
            (Slot::Public, sealed.to_string()),
            (Slot::Ring, sealed.to_string()),
            (Slot::Private, sealed.replace(":kid:", ":dik:")),
            (Slot::Private, sealed[..sealed.len() - 2].to_owned()),
            (Slot::Private, sealed.to_string() + "AA"),
            (Slot::Private, sealed.to_string() + "!"),
        ] {
            assert_eq!(opened(&keys, slot, &text), Err(EncryptionError::Forged));
        }
        for text in [
            "postern-encrypted:",
            "postern-encrypted:2:a:b:c",
            "postern-encrypted:1:a:b",
            &format!("{}:x", *sealed),
        ] {
            assert_eq!(
                opened(&keys, Slot::Private, text),
                Err(EncryptionError::Unknown)
            );
        }
    }

    #[test]
    fn the_previous_key_reads_and_another_one_is_named() {
        let sealed = with(1).seal(Slot::Ring, "-", "{}").unwrap().unwrap();
        let rotated = KeyEncryption {
            previous: Some(key(1)),
            ..with(2)
        };
        let read = rotated.open(Slot::Ring, &sealed).unwrap();
        assert_eq!(
            (read.text.as_str(), read.at_rest),
            ("{}", EncryptionState::Outdated)
        );
        let line = opened(&with(2), Slot::Ring, &sealed)
            .unwrap_err()
            .to_string();
        let (one, two) = (key(1).id, key(2).id);
        assert_eq!(
            line,
            format!("encrypted with the key-encryption key {one}, and what is configured is {two}")
        );
        let none = opened(&KeyEncryption::default(), Slot::Ring, &sealed);
        assert!(none.unwrap_err().to_string().contains("none is configured"));
    }

    #[test]
    fn a_value_in_clear_is_read_unless_that_is_forbidden() {
        let mut keys = with(1);
        assert_eq!(opened(&keys, Slot::Private, "a key").unwrap(), "a key");
        keys.required = true;
        let rejected = opened(&keys, Slot::Private, "a key");
        assert_eq!(rejected, Err(EncryptionError::InClear));
    }
}
