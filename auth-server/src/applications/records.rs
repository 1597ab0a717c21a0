//! The records of applications in the store.

use super::secret_hash::SecretHashes;
use super::{AppId, Applications};
use crate::store::open_store::OpenStore;
use crate::store::{Key, Kind, StoreError};

impl OpenStore {
    /// Reads all records, also those of removed applications. One that this version cannot read, or
    /// that is not authentic, affects no other.
    pub(crate) async fn read_applications(&self) -> Result<Applications, StoreError> {
        let mut all = Applications::default();
        for held in self.list(Kind::Application).await? {
            let id = held.key.id;
            all.versions.insert(id.clone(), held.version);
            match (id.parse(), held.record) {
                (Ok(id), Ok(record)) => all.put(id, record),
                _ => drop(all.unreadable.insert(id)),
            }
        }
        Ok(all)
    }

    /// Replaces the record of `id`, or adds the first one; one that cannot be read only by one without a
    /// secret. Returns `false` and changes nothing if the record is not the one in `read` any more.
    pub(crate) async fn swap_application(
        &self,
        read: &Applications,
        id: &AppId,
        record: &SecretHashes,
    ) -> Result<bool, StoreError> {
        let key = Key {
            kind: Kind::Application,
            id: id.to_string(),
        };
        if read.is_unreadable(id) && !record.is_empty() {
            let cause = format!(
                "the record of {id} cannot be read, or was written without the key-encryption key; \
                 auth-server application remove ends it"
            );
            return Err(self.unusable(&key, &cause));
        }
        let expected = read.versions.get(id.as_str()).cloned();
        self.write(key, expected, record, None).await
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::Arc;

    use zeroize::Zeroizing;

    use super::*;
    use crate::store::at_rest::AtRest;
    use crate::store::directory::Access;
    use crate::store::envelope_encryption::KeyEncryption;
    use crate::store::envelope_encryption::tests::{key, with};
    use crate::store::sqlite::SqliteStore;
    use crate::store::{Change, Outcome};

    /// A store, opened by servers with different key-encryption keys.
    struct Directory(tempfile::TempDir);

    impl Directory {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn open(&self, encryption: KeyEncryption) -> OpenStore {
            let store = SqliteStore::new(self.0.path().join("data"), Access::Write);
            OpenStore::of(Arc::new(store)).with(encryption)
        }

        async fn plant(&self, id: &AppId, record: &str) {
            let put = Change::Put {
                key: Key {
                    kind: Kind::Application,
                    id: id.to_string(),
                },
                expected: None,
                value: Zeroizing::new(record.to_owned()),
                ends: None,
            };
            let store = self.open(KeyEncryption::default());
            let planted = store.call().await.unwrap().commit(vec![put]).await;
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
            let read = lost
                .open(KeyEncryption::default())
                .read_applications()
                .await
                .unwrap();
            assert!(read.is_unreadable(&orders) && !read.is_empty(), "{record}");
        }
        directory.plant(&orders, "1").await;
        let read = records.read_applications().await.unwrap();
        let one = SecretHashes::of("first");
        let error = records
            .swap_application(&read, &orders, &one)
            .await
            .unwrap_err();
        let line = error.to_string();
        assert!(
            line.contains("store.db") && line.contains("orders"),
            "{line}"
        );
        assert_eq!(
            records.swap_application(&read, &stock, &one).await,
            Ok(true)
        );
        assert_eq!(
            records.swap_application(&read, &stock, &one).await,
            Ok(false)
        );
        let read = records.read_applications().await.unwrap();
        assert!(read.accepts("stock", "first") && read.is_unreadable(&orders));
        let ended = records
            .swap_application(&read, &orders, &SecretHashes::default())
            .await;
        assert_eq!(ended, Ok(true));
        let read = records.read_applications().await.unwrap();
        assert_eq!(read.record("orders"), Some(&SecretHashes::default()));
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
        assert_eq!(
            in_clear.swap_application(&nothing, &orders, &one).await,
            Ok(true)
        );
        assert_eq!(
            being.swap_application(&nothing, &stock, &one).await,
            Ok(true)
        );
        for records in [&in_clear, &being] {
            let read = records.read_applications().await.unwrap();
            assert!(read.accepts("orders", "first") && read.accepts("stock", "first"));
        }
        let read = encrypted.read_applications().await.unwrap();
        assert!(read.is_unreadable(&orders) && read.accepts("stock", "first"));
        let forged = encrypted
            .swap_application(&read, &orders, &one)
            .await
            .unwrap_err();
        assert!(
            forged.to_string().contains("application remove"),
            "{forged}"
        );
        let read = being.read_applications().await.unwrap();
        assert_eq!(being.swap_application(&read, &orders, &one).await, Ok(true));
        assert!(
            encrypted
                .read_applications()
                .await
                .unwrap()
                .accepts("orders", "first")
        );
    }
}
