//! Encryption of private values at rest: each value is encrypted with the key-encryption key, and bound to
//! its record.
//!
//! `postern-encrypted:1:ENCRYPTION-KEY:DATA`, where DATA is the base64url of nonce, AES-256-GCM
//! ciphertext and tag. Everything before DATA and the name of the record are additional data, so a
//! moved value does not decrypt.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{Context, SHA256};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER_PERMISSIVE};
use parking_lot::Mutex;
use postern_process::logs::sanitize::LogText;
use zeroize::Zeroizing;

use super::Key;
use super::at_rest::AtRest;

/// The begin of an encrypted value; no plaintext value (PEM, base64, JSON) starts like this.
pub(super) const MARK: &str = "postern-encrypted:";
const VERSION: &str = "1";
/// The word in place of the key that encrypts.
const CLEAR: &str = "clear";
const KEY_BYTES: usize = 32;
/// Length of the digest that identifies a key to operators, who have a handful at most.
const ID_BYTES: usize = 6;

/// The errors of keys; their texts do not repeat the key.
const NO_KEY: &str =
    "expected 32 random bytes in base64 or hex, such as openssl rand -base64 32 prints";
const CLEAR_ALONE: &str = "'clear' comes before a key that decrypts";

pub(crate) struct KeyEncryptionKey {
    /// A digest; the key cannot be derived from it.
    id: String,
    key: RandomizedNonceKey,
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
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        // The line end of a file is no part of the key.
        let bytes = decode(text.trim()).ok_or(NO_KEY)?;
        // 32 equal bytes are a placeholder of an example.
        if bytes.iter().all(|byte| Some(byte) == bytes.first()) {
            return Err(NO_KEY);
        }
        let mut digest = Context::new(&SHA256);
        // A prefix of its own, so that no other program publishes the same digest of the key.
        digest.update(b"postern key-encryption key");
        digest.update(&bytes);
        let named = digest.finish();
        Ok(Self {
            id: URL_SAFE_NO_PAD.encode(named.as_ref().get(..ID_BYTES).unwrap_or_default()),
            key: RandomizedNonceKey::new(&AES_256_GCM, &bytes).map_err(|_| NO_KEY)?,
        })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Encrypts the value of a record.
    pub(crate) fn seal(
        &self,
        record: &Key,
        text: &str,
    ) -> Result<Zeroizing<String>, EncryptionError> {
        let head = format!("{MARK}{VERSION}:{}:", self.id);
        let mut bytes = Zeroizing::new(text.as_bytes().to_vec());
        let (nonce, tag) = self
            .key
            .seal_in_place_separate_tag(additional(&head, record), &mut bytes)
            .map_err(|_| EncryptionError::Failed)?;
        // Ciphertext by now: only `bytes` above held the plaintext, and is zeroized.
        let data = [nonce.as_ref().as_slice(), bytes.as_slice(), tag.as_ref()].concat();
        Ok(Zeroizing::new(head + &URL_SAFE_NO_PAD.encode(data)))
    }
}

/// Decodes a key in hex, or in base64 of either alphabet, padded or not.
fn decode(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let text = text.trim_end_matches('=').as_bytes();
    for encoding in [HEXLOWER_PERMISSIVE, BASE64_NOPAD, BASE64URL_NOPAD] {
        // 64 digits of hex are valid base64 too, but of more bytes: the length decides.
        if let Ok(bytes) = encoding.decode(text).map(Zeroizing::new)
            && bytes.len() == KEY_BYTES
        {
            return Some(bytes);
        }
    }
    None
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
    #[error("encrypted for another place, or changed since it was encrypted")]
    Forged,
    #[error("encrypted in a way that this version does not know")]
    Unknown,
    #[error(
        "not encrypted, which --require-encrypted-keys demands; auth-server keys reencrypt without that flag encrypts it"
    )]
    InClear,
    #[error("not encrypted, though the store is: who wrote it had no key")]
    Planted,
    #[error("could not be encrypted")]
    Failed,
}

/// The configured keys.
#[derive(Debug, Default)]
pub(crate) struct KeyEncryption {
    /// The key that encrypts a new store, or a store that is encrypted anew; `None` for plaintext.
    pub(crate) current: Option<KeyEncryptionKey>,
    /// The keys that decrypt values of other servers, or of earlier times.
    pub(crate) others: Vec<KeyEncryptionKey>,
    /// True if private values in plaintext are rejected.
    pub(crate) required: bool,
    /// The state of the store as it was read last.
    pub(crate) at_rest: Mutex<Option<AtRest>>,
}

pub(crate) struct Decrypted {
    pub(crate) text: Zeroizing<String>,
    /// The id of the key-encryption key; `None` for plaintext.
    pub(crate) under: Option<String>,
}

impl KeyEncryption {
    /// Parses keys with white space between them: the first encrypts, unless `clear` stands in its place.
    ///
    /// # Errors
    /// For a text that is no key, and for `clear` alone.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut words = text.split_whitespace().peekable();
        let in_clear = words.next_if_eq(&CLEAR).is_some();
        let mut keys = words
            .map(KeyEncryptionKey::parse)
            .collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() {
            return Err(if in_clear { CLEAR_ALONE } else { NO_KEY });
        }
        Ok(Self {
            current: if in_clear { None } else { Some(keys.remove(0)) },
            others: keys,
            ..Self::default()
        })
    }

    /// Returns all keys, the one that encrypts first.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &KeyEncryptionKey> {
        self.current.iter().chain(&self.others)
    }

    /// Decrypts the value of a record; returns plaintext as it is.
    pub(crate) fn open(&self, record: &Key, text: &str) -> Result<Decrypted, EncryptionError> {
        let Some(rest) = text.strip_prefix(MARK) else {
            if self.required {
                return Err(EncryptionError::InClear);
            }
            return Ok(Decrypted {
                text: Zeroizing::new(text.to_owned()),
                under: None,
            });
        };
        let parts: Vec<&str> = rest.split(':').collect();
        let [VERSION, id, data] = parts.as_slice() else {
            return Err(EncryptionError::Unknown);
        };
        let key = self.key(id)?;
        // The head is authenticated as it stands, so a changed key id does not decrypt.
        let head = text.strip_suffix(data).unwrap_or_default();
        let text = decrypt(&key.key, additional(head, record), data);
        Ok(Decrypted {
            text: text.ok_or(EncryptionError::Forged)?,
            under: Some(key.id.clone()),
        })
    }

    pub(super) fn key(&self, id: &str) -> Result<&KeyEncryptionKey, EncryptionError> {
        if let Some(found) = self.keys().find(|key| key.id == id) {
            return Ok(found);
        }
        // Name both sides: the operator compares the needed id with the configured ones.
        let ids: Vec<_> = self.keys().map(|key| key.id.as_str()).collect();
        Err(EncryptionError::NoKey {
            needed: LogText(id).to_string(),
            configured: match ids.as_slice() {
                [] => None,
                ids => Some(ids.join(", ")),
            },
        })
    }
}

fn additional(head: &str, Key { kind, id }: &Key) -> Aad<String> {
    Aad::from(format!("{head}{} {id}", kind.name()))
}

fn decrypt(
    key: &RandomizedNonceKey,
    additional: Aad<String>,
    data: &str,
) -> Option<Zeroizing<String>> {
    let mut data = Zeroizing::new(URL_SAFE_NO_PAD.decode(data).ok()?);
    let (nonce, sealed) = data.split_first_chunk_mut::<NONCE_LEN>()?;
    let opened = key
        .open_in_place(Nonce::from(&*nonce), additional, sealed)
        .ok()?;
    Some(Zeroizing::new(std::str::from_utf8(opened).ok()?.to_owned()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use super::super::Kind;
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

    #[test]
    fn the_first_key_encrypts_and_all_decrypt() {
        let (one, two) = (
            format!("01{}", "5a".repeat(31)),
            format!("02{}", "5a".repeat(31)),
        );
        for (text, current, others) in [
            (one.clone(), Some("1"), vec![]),
            (format!("{one}\n{two}\n"), Some("1"), vec!["2"]),
            (format!("clear {two} {one}"), None, vec!["2", "1"]),
        ] {
            let keys = KeyEncryption::parse(&text).unwrap();
            let name = |found: &KeyEncryptionKey| if found.id == key(1).id { "1" } else { "2" };
            assert_eq!(keys.current.as_ref().map(name), current);
            assert_eq!(keys.others.iter().map(name).collect::<Vec<_>>(), others);
        }
        for (text, error) in [
            ("", NO_KEY),
            ("clear", CLEAR_ALONE),
            (&format!("{one}\nclear"), NO_KEY),
        ] {
            assert_eq!(KeyEncryption::parse(text).unwrap_err(), error, "{text}");
        }
    }

    fn record(id: &str) -> Key {
        Key {
            kind: Kind::Session,
            id: id.to_owned(),
        }
    }

    fn opened(keys: &KeyEncryption, id: &str, text: &str) -> Result<String, EncryptionError> {
        keys.open(&record(id), text)
            .map(|opened| opened.text.to_string())
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
            assert_eq!(error, NO_KEY, "{text}");
        }
    }

    fn key_id(text: &str) -> String {
        KeyEncryptionKey::parse(text).unwrap().id().to_owned()
    }

    #[test]
    fn what_is_encrypted_opens_in_its_slot_and_no_two_are_alike() {
        let keys = with(1);
        let seal = || key(1).seal(&record("a"), "a key").unwrap();
        let (one, other) = (seal(), seal());
        assert_ne!(one, other);
        assert!(!one.contains("a key"));
        for sealed in [one, other] {
            let opened = keys.open(&record("a"), &sealed).unwrap();
            assert_eq!(opened.text.as_str(), "a key");
            assert_eq!(opened.under, Some(key(1).id));
        }
    }

    #[test]
    fn what_was_moved_renamed_or_changed_does_not_open() {
        let keys = with(1);
        let sealed = key(1).seal(&record("a"), "a key").unwrap();
        for (id, text) in [
            ("b", sealed.to_string()),
            ("a", sealed[..sealed.len() - 2].to_owned()),
            ("a", sealed.to_string() + "AA"),
            ("a", sealed.to_string() + "!"),
        ] {
            assert_eq!(opened(&keys, id, &text), Err(EncryptionError::Forged));
        }
        let other = Key {
            kind: Kind::Application,
            ..record("a")
        };
        assert!(keys.open(&other, &sealed).is_err());
        for text in [
            "postern-encrypted:",
            "postern-encrypted:2:a:b",
            "postern-encrypted:1:a",
            &format!("{}:x", *sealed),
        ] {
            assert_eq!(opened(&keys, "a", text), Err(EncryptionError::Unknown));
        }
    }

    #[test]
    fn the_other_keys_read_and_a_missing_one_is_named() {
        let sealed = key(1).seal(&record("a"), "{}").unwrap();
        let rotated = KeyEncryption {
            others: vec![key(1)],
            ..with(2)
        };
        let read = rotated.open(&record("a"), &sealed).unwrap();
        assert_eq!((read.text.as_str(), read.under), ("{}", Some(key(1).id)));
        let line = opened(&with(2), "a", &sealed).unwrap_err().to_string();
        let (one, two) = (key(1).id, key(2).id);
        assert_eq!(
            line,
            format!("encrypted with the key-encryption key {one}, and what is configured is {two}")
        );
        let none = opened(&KeyEncryption::default(), "a", &sealed);
        assert!(none.unwrap_err().to_string().contains("none is configured"));
    }
}
