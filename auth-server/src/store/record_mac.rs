//! Authentication of records that stand in the store in clear: a message authentication code, so that
//! write access to the store is not enough to plant one.
//!
//! `VERSION:ENCRYPTION-KEY:CODE`, where CODE is the base64url of an HMAC-SHA-256 over place, id and
//! record.

use std::collections::BTreeMap;

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

use super::Key;
use super::envelope_encryption::{EncryptionError, KeyEncryption, KeyEncryptionKey};

const VERSION: &str = "1";
/// Separates the derived key from other uses of the key-encryption key.
const PURPOSE: &[u8] = b"postern application records";

/// A key that authenticates records, derived from a key-encryption key (HKDF, RFC 5869).
pub(super) struct RecordKey(hmac::Key);

impl RecordKey {
    pub(super) fn derive(key_encryption_key: &[u8]) -> Result<Self, Unspecified> {
        let extracted = Salt::new(HKDF_SHA256, &[]).extract(key_encryption_key);
        Ok(Self(extracted.expand(&[PURPOSE], HMAC_SHA256)?.into()))
    }
}

/// The members of a record without its code.
pub(crate) type Members = BTreeMap<String, Value>;

impl KeyEncryption {
    /// Returns the code of a record that is written as the store is: none in clear.
    pub(crate) fn code(
        &self,
        key: &Key,
        members: &Members,
    ) -> Result<Option<String>, EncryptionError> {
        let Some(under) = self.key_of(&self.at_rest())? else {
            return Ok(None);
        };
        let message = message(key, members).ok_or(EncryptionError::Failed)?;
        let code = URL_SAFE_NO_PAD.encode(hmac::sign(&under.records().0, &message));
        Ok(Some(format!("{VERSION}:{}:{code}", under.id())))
    }

    /// Returns true if the record was written under one of the configured keys.
    pub(crate) fn is_authentic(&self, key: &Key, members: &Members, code: &str) -> bool {
        let is_of = |configured: &KeyEncryptionKey| {
            let prefix = format!("{VERSION}:{}:", configured.id());
            let code = URL_SAFE_NO_PAD.decode(code.strip_prefix(&prefix)?).ok()?;
            hmac::verify(&configured.records().0, &message(key, members)?, &code).ok()
        };
        self.keys().any(|configured| is_of(configured).is_some())
    }
}

/// Serializes kind, id and members unambiguously: no other value of the store is taken for the
/// record, and another version may order them differently.
fn message(key: &Key, members: &Members) -> Option<Vec<u8>> {
    serde_json::to_vec(&(key.kind.name(), &key.id, members)).ok()
}
