//! Authentication of application records at rest: plaintext, as they hold hashes of random secrets,
//! with a message authentication code, as a forged record would get the key.
//!
//! `VERSION:ENCRYPTION-KEY:CODE`, where CODE is the base64url of an HMAC-SHA-256 over place, id and
//! record.

use std::collections::BTreeMap;

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

use super::envelope_encryption::{KeyEncryption, KeyEncryptionKey};
use crate::applications::AppId;
use crate::applications::secret_hash::SecretHashes;

const VERSION: &str = "1";
/// Separates the derived key from other uses of the key-encryption key.
const PURPOSE: &[u8] = b"postern application records";
/// Part of the message beside the id, so that no other value of the store is taken for a record.
const KIND: &str = "application";

/// A key that authenticates records, derived from a key-encryption key (HKDF, RFC 5869).
pub(super) struct RecordKey(hmac::Key);

impl RecordKey {
    pub(super) fn derive(key_encryption_key: &[u8]) -> Result<Self, Unspecified> {
        let extracted = Salt::new(HKDF_SHA256, &[]).extract(key_encryption_key);
        Ok(Self(extracted.expand(&[PURPOSE], HMAC_SHA256)?.into()))
    }
}

impl KeyEncryption {
    /// Adds the code of the current key; none without a key.
    pub(super) fn authenticate(&self, id: &AppId, record: &SecretHashes) -> SecretHashes {
        record.with_mac(self.current.as_ref().and_then(|key| {
            let code = hmac::sign(&key.records().0, &message(id, record)?);
            let code = URL_SAFE_NO_PAD.encode(code);
            Some(format!("{VERSION}:{}:{code}", key.id()))
        }))
    }

    /// Returns true if the record was written under one of the configured keys.
    pub(super) fn is_authentic(&self, id: &AppId, record: &SecretHashes) -> bool {
        let is_of = |key: &KeyEncryptionKey| {
            let prefix = format!("{VERSION}:{}:", key.id());
            let code = record.mac()?.strip_prefix(&prefix)?;
            let code = URL_SAFE_NO_PAD.decode(code).ok()?;
            hmac::verify(&key.records().0, &message(id, record)?, &code).ok()
        };
        let mut keys = self.current.iter().chain(&self.previous);
        keys.any(|key| is_of(key).is_some())
    }
}

/// Serializes place, id and record unambiguously as JSON, with sorted members, since another
/// version may order them differently.
fn message(id: &AppId, record: &SecretHashes) -> Option<Vec<u8>> {
    let record = serde_json::to_value(record.with_mac(None)).ok()?;
    let members: BTreeMap<String, Value> = serde_json::from_value(record).ok()?;
    serde_json::to_vec(&(KIND, id, members)).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::keys::store::envelope_encryption::tests::{key, with};

    #[test]
    fn a_record_is_authentic_under_its_own_id_alone() {
        let (orders, stock): (AppId, AppId) = ("orders".parse().unwrap(), "stock".parse().unwrap());
        let record = SecretHashes::of("first").with_new("second");
        let keys = with(1);
        let written = keys.authenticate(&orders, &record);
        assert_eq!(written.with_mac(None), record);
        assert!(keys.is_authentic(&orders, &written));
        let mac = written.mac().unwrap().to_owned();
        for (id, forged) in [
            (&stock, written.clone()),
            (&orders, record.clone()),
            (&orders, record.newest().with_mac(Some(mac.clone()))),
            (&orders, record.with_mac(Some(mac.replace("1:", "2:")))),
            (
                &orders,
                record.with_mac(Some(mac[..mac.len() - 4].to_owned())),
            ),
            (&orders, record.with_mac(Some(String::new()))),
        ] {
            assert!(!keys.is_authentic(id, &forged), "{forged:?}");
        }
        assert!(!with(2).is_authentic(&orders, &written));
    }

    #[test]
    fn members_of_a_newer_version_are_authenticated_in_any_order() {
        let orders: AppId = "orders".parse().unwrap();
        let read = |json: &str| serde_json::from_str::<SecretHashes>(json).unwrap();
        let written = with(1).authenticate(&orders, &read(r#"{"a":1,"secretSha256":[],"z":2}"#));
        let mac = written.mac().map(str::to_owned);
        for (json, is_authentic) in [
            (r#"{"z":2,"a":1,"secretSha256":[]}"#, true),
            (r#"{"secretSha256":[],"a":1,"z":3}"#, false),
            (r#"{"secretSha256":[],"a":1}"#, false),
            (r#"{"secretSha256":[]}"#, false),
        ] {
            let record = read(json).with_mac(mac.clone());
            assert_eq!(
                with(1).is_authentic(&orders, &record),
                is_authentic,
                "{json}"
            );
        }
    }

    #[test]
    fn the_previous_key_still_reads_and_none_writes_nothing() {
        let orders: AppId = "orders".parse().unwrap();
        let written = with(1).authenticate(&orders, &SecretHashes::of("s"));
        let rotated = KeyEncryption {
            previous: Some(key(1)),
            ..with(2)
        };
        assert!(rotated.is_authentic(&orders, &written));
        let anew = rotated.authenticate(&orders, &written);
        assert!(with(2).is_authentic(&orders, &anew));
        let off = KeyEncryption::default().authenticate(&orders, &written);
        assert_eq!(off.mac(), None);
    }
}
