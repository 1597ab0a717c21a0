//! The records of applications in the store, each with the code that authenticates it: they stand
//! there in clear, as they hold hashes of random secrets, but a planted one would get the key.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::secret_hash::SecretHashes;
use super::{AppId, Applications};
use crate::store::envelope_encryption::{EncryptionError, KeyEncryption};
use crate::store::record_mac::Members;
use crate::store::{Change, Key, Kind, Outcome, Store, StoreError, Stored};

pub(crate) struct ApplicationRecords {
    store: Arc<dyn Store>,
    encryption: Arc<KeyEncryption>,
}

impl ApplicationRecords {
    pub(crate) fn new(store: Arc<dyn Store>, encryption: Arc<KeyEncryption>) -> Self {
        Self { store, encryption }
    }

    /// Reads all records, also those of removed applications. One that this version cannot read
    /// affects no other, and in an encrypted store one that is not authentic counts as such.
    pub(crate) async fn read(&self) -> Result<Applications, StoreError> {
        let mut all = Applications::default();
        for (id, Stored { value, version }) in self.store.list(Kind::Application).await? {
            all.versions.insert(id.clone(), version);
            match (id.parse(), serde_json::from_str(&value)) {
                (Ok(id), Ok(record)) => self.add(&mut all, id, &record),
                _ => drop(all.unreadable.insert(id)),
            }
        }
        Ok(all)
    }

    fn add(&self, all: &mut Applications, id: AppId, record: &SecretHashes) {
        if self.encryption.accepts_clear() || record.is_authentic(&id, &self.encryption) {
            all.put(id, record.with_mac(None));
        } else {
            all.unreadable.insert(id.0);
        }
    }

    /// Replaces the record of `id`, or adds the first one; one that cannot be read only by one without a
    /// secret. Returns `false` and changes nothing if the record is not the one in `read` any more.
    pub(crate) async fn swap(
        &self,
        read: &Applications,
        id: &AppId,
        record: &SecretHashes,
    ) -> Result<bool, StoreError> {
        let key = key(id);
        let unusable =
            |cause: &str| StoreError::Unusable(format!("{}: {cause}", self.store.describe(&key)));
        if read.is_unreadable(id) && !record.is_empty() {
            return Err(unusable(&format!(
                "the record of {id} cannot be read, or was written without the key-encryption key; \
                 auth-server application remove ends it"
            )));
        }
        let record = record.authenticated(id, &self.encryption);
        let record = record.map_err(|error| unusable(&error.to_string()))?;
        let record = serde_json::to_string(&record);
        let record = record.map_err(|error| unusable(&error.to_string()))?;
        let put = Change::Put {
            expected: read.versions.get(id.as_str()).cloned(),
            value: Zeroizing::new(record),
            ends: None,
            key: key.clone(),
        };
        Ok(self.store.commit(vec![put]).await? == Outcome::Committed)
    }

    /// Writes every record again as the store is, and returns the number of those that cannot be read.
    pub(crate) async fn rewrite(&self) -> Result<usize, StoreError> {
        let ids: Vec<_> = self.read().await?.records.into_keys().collect();
        for id in ids {
            loop {
                let read = self.read().await?;
                let Some(record) = read.record(id.as_str()) else {
                    break;
                };
                if self.swap(&read, &id, record).await? {
                    break;
                }
            }
        }
        Ok(self.read().await?.unreadable.len())
    }
}

fn key(id: &AppId) -> Key {
    Key {
        kind: Kind::Application,
        id: id.to_string(),
    }
}

impl SecretHashes {
    /// With the code of the store's key; without one in a store in clear.
    fn authenticated(
        &self,
        id: &AppId,
        encryption: &KeyEncryption,
    ) -> Result<Self, EncryptionError> {
        let members = self.members().ok_or(EncryptionError::Failed)?;
        Ok(self.with_mac(encryption.code(&key(id), &members)?))
    }

    /// Returns true if the record was written under one of the configured keys.
    fn is_authentic(&self, id: &AppId, encryption: &KeyEncryption) -> bool {
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
    use crate::store::at_rest::AtRest;
    use crate::store::envelope_encryption::tests::{key, with};
    use crate::store::sqlite::{Access, SqliteStore};

    /// A store, opened by servers with different key-encryption keys.
    struct Directory(tempfile::TempDir);

    impl Directory {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn store(&self) -> Arc<dyn Store> {
            Arc::new(SqliteStore::new(self.0.path().join("data"), Access::Write))
        }

        fn open(&self, encryption: KeyEncryption) -> ApplicationRecords {
            ApplicationRecords::new(self.store(), Arc::new(encryption))
        }

        async fn plant(&self, id: &AppId, record: &str) {
            let put = Change::Put {
                key: super::key(id),
                expected: None,
                value: Zeroizing::new(record.to_owned()),
                ends: None,
            };
            let planted = self.store().commit(vec![put]).await;
            assert_eq!(planted, Ok(Outcome::Committed));
        }
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_skipped_and_can_only_end() {
        let directory = Directory::new();
        let records = directory.open(KeyEncryption::default());
        let (orders, stock): (AppId, AppId) = ("orders".parse().unwrap(), "stock".parse().unwrap());
        for record in ["1", "{", "{}", r#"{"secretSha256":["AAAA"]}"#] {
            let lost = Directory::new();
            lost.plant(&orders, record).await;
            let read = lost.open(KeyEncryption::default()).read().await.unwrap();
            assert!(read.is_unreadable(&orders) && !read.is_empty(), "{record}");
        }
        directory.plant(&orders, "1").await;
        let read = records.read().await.unwrap();
        let one = SecretHashes::of("first");
        let error = records.swap(&read, &orders, &one).await.unwrap_err();
        let line = error.to_string();
        assert!(
            line.contains("store.db") && line.contains("orders"),
            "{line}"
        );
        assert_eq!(records.swap(&read, &stock, &one).await, Ok(true));
        assert_eq!(records.swap(&read, &stock, &one).await, Ok(false));
        let read = records.read().await.unwrap();
        assert!(read.accepts("stock", "first") && read.is_unreadable(&orders));
        let ended = records.swap(&read, &orders, &SecretHashes::none()).await;
        assert_eq!(ended, Ok(true));
        let read = records.read().await.unwrap();
        assert_eq!(read.record("orders"), Some(&SecretHashes::none()));
    }

    #[tokio::test]
    async fn a_record_counts_as_the_store_is() {
        let directory = Directory::new();
        let (orders, stock): (AppId, AppId) = ("orders".parse().unwrap(), "stock".parse().unwrap());
        let one = SecretHashes::of("first");
        let nothing = Applications::default();
        let opened = |at_rest: &AtRest| {
            let encryption = with(1);
            encryption.take_over(at_rest);
            directory.open(encryption)
        };
        let id = key(1).id().to_owned();
        let in_clear = opened(&AtRest::InClear);
        let (being, encrypted) = (
            opened(&AtRest::BeingEncrypted(id.clone())),
            opened(&AtRest::Encrypted(id)),
        );
        assert_eq!(in_clear.swap(&nothing, &orders, &one).await, Ok(true));
        assert_eq!(being.swap(&nothing, &stock, &one).await, Ok(true));
        for records in [&in_clear, &being] {
            let read = records.read().await.unwrap();
            assert!(read.accepts("orders", "first") && read.accepts("stock", "first"));
        }
        let read = encrypted.read().await.unwrap();
        assert!(read.is_unreadable(&orders) && read.accepts("stock", "first"));
        let forged = encrypted.swap(&read, &orders, &one).await.unwrap_err();
        assert!(
            forged.to_string().contains("application remove"),
            "{forged}"
        );
        let read = being.read().await.unwrap();
        assert_eq!(being.swap(&read, &orders, &one).await, Ok(true));
        assert!(encrypted.read().await.unwrap().accepts("orders", "first"));
    }

    #[test]
    fn a_record_is_authentic_under_its_own_id_alone() {
        let (orders, stock): (AppId, AppId) = ("orders".parse().unwrap(), "stock".parse().unwrap());
        let record = SecretHashes::of("first").with_new("second");
        let keys = with(1);
        let written = record.authenticated(&orders, &keys).unwrap();
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
        let written = read(r#"{"a":1,"secretSha256":[],"z":2}"#)
            .authenticated(&orders, &with(1))
            .unwrap();
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
}
