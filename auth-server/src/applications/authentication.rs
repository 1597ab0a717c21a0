//! The code that authenticates an application's record: it stands in the store in clear, as it holds
//! hashes of random secrets, but a planted one would get the key.

use super::AppId;
use super::secret_hash::SecretHashes;
use crate::store::envelope_encryption::KeyEncryption;
use crate::store::record_mac::Members;
use crate::store::{Key, Kind};

/// Returns the place of an application's record in the store.
pub(crate) fn key(id: &AppId) -> Key {
    Key {
        kind: Kind::Application,
        id: id.to_string(),
    }
}

impl SecretHashes {
    /// With the code of the current key; without one if there is no key.
    pub(crate) fn authenticated(&self, id: &AppId, encryption: &KeyEncryption) -> Self {
        let code = self.members();
        self.with_mac(code.and_then(|members| encryption.code(&key(id), &members)))
    }

    /// Returns true if the record was written under one of the configured keys.
    pub(crate) fn is_authentic(&self, id: &AppId, encryption: &KeyEncryption) -> bool {
        let (code, members) = (self.mac(), self.members());
        code.zip(members)
            .is_some_and(|(code, members)| encryption.is_authentic(&key(id), &members, code))
    }

    /// Returns what a code is made of.
    fn members(&self) -> Option<Members> {
        let record = serde_json::to_value(self.with_mac(None)).ok()?;
        serde_json::from_value(record).ok()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::store::envelope_encryption::tests::{key, with};

    #[test]
    fn a_record_is_authentic_under_its_own_id_alone() {
        let (orders, stock): (AppId, AppId) = ("orders".parse().unwrap(), "stock".parse().unwrap());
        let record = SecretHashes::of("first").with_new("second");
        let keys = with(1);
        let written = record.authenticated(&orders, &keys);
        assert_eq!(written.with_mac(None), record);
        assert!(written.is_authentic(&orders, &keys));
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
            assert!(!forged.is_authentic(id, &keys), "{forged:?}");
        }
        assert!(!written.is_authentic(&orders, &with(2)));
    }

    #[test]
    fn members_of_a_newer_version_are_authenticated_in_any_order() {
        let orders: AppId = "orders".parse().unwrap();
        let read = |json: &str| serde_json::from_str::<SecretHashes>(json).unwrap();
        let written = read(r#"{"a":1,"secretSha256":[],"z":2}"#).authenticated(&orders, &with(1));
        let mac = written.mac().map(str::to_owned);
        for (json, is_authentic) in [
            (r#"{"z":2,"a":1,"secretSha256":[]}"#, true),
            (r#"{"secretSha256":[],"a":1,"z":3}"#, false),
            (r#"{"secretSha256":[],"a":1}"#, false),
            (r#"{"secretSha256":[]}"#, false),
        ] {
            let record = read(json).with_mac(mac.clone());
            assert_eq!(
                record.is_authentic(&orders, &with(1)),
                is_authentic,
                "{json}"
            );
        }
    }

    #[test]
    fn the_previous_key_still_reads_and_none_writes_nothing() {
        let orders: AppId = "orders".parse().unwrap();
        let written = SecretHashes::of("s").authenticated(&orders, &with(1));
        let rotated = KeyEncryption {
            previous: Some(key(1)),
            ..with(2)
        };
        assert!(written.is_authentic(&orders, &rotated));
        let anew = written.authenticated(&orders, &rotated);
        assert!(anew.is_authentic(&orders, &with(2)));
        let off = written.authenticated(&orders, &KeyEncryption::default());
        assert_eq!(off.mac(), None);
    }
}
