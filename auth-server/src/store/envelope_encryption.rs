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
use zeroize::Zeroizing;

use super::Key;

/// The beginning of an encrypted value; no plaintext value (PEM, base64, JSON) starts like this.
pub(super) const MARK: &str = "postern-encrypted:";
const VERSION: &str = "1";
const KEY_BYTES: usize = 32;
/// Length of the digest that identifies a key to operators, who have a handful at most.
const ID_BYTES: usize = 6;

/// The error of a key; its text does not repeat it.
pub(super) const NO_KEY: &str =
    "expected 32 random bytes in base64 or hex, such as openssl rand -base64 32 prints";

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

    /// Decrypts the value of a record. Its head is authenticated as it stands, so a changed key id does not decrypt.
    pub(super) fn open(
        &self,
        record: &Key,
        envelope: &Envelope<'_>,
    ) -> Result<Zeroizing<String>, EncryptionError> {
        let additional = additional(envelope.head, record);
        decrypt(&self.key, additional, envelope.data).ok_or(EncryptionError::Forged)
    }
}

/// The parts of an encrypted value.
pub(super) struct Envelope<'t> {
    head: &'t str,
    /// The id of the key that encrypted it.
    pub(super) key: &'t str,
    data: &'t str,
}

impl<'t> Envelope<'t> {
    /// Parses a value; `None` for plaintext.
    pub(super) fn parse(text: &'t str) -> Result<Option<Self>, EncryptionError> {
        let Some(rest) = text.strip_prefix(MARK) else {
            return Ok(None);
        };
        let parts: Vec<&str> = rest.split(':').collect();
        let [VERSION, key, data] = parts.as_slice() else {
            return Err(EncryptionError::Unknown);
        };
        let head = text.strip_suffix(data).unwrap_or_default();
        Ok(Some(Self { head, key, data }))
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
    use super::*;

    /// Returns a key per name.
    pub(crate) fn key(name: u8) -> KeyEncryptionKey {
        KeyEncryptionKey::parse(&format!("{name:02x}{}", "5a".repeat(31))).unwrap()
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
}
