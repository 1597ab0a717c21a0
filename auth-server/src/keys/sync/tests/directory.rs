//! The applications of servers under test, in a directory.

use std::path::PathBuf;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::applications::records::ApplicationRecords;
use crate::applications::secret_hash::SecretHashes;
use crate::store::envelope_encryption::KeyEncryption;
use crate::store::sqlite::{Access, SqliteStore};
use crate::store::{Change, Key, Kind, Store, Version};

#[derive(Debug)]
pub(super) struct Directory(tempfile::TempDir);

impl Default for Directory {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Directory {
    fn path(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn open(&self) -> Arc<SqliteStore> {
        SqliteStore::new(self.path(), Access::Write)
    }

    pub(super) fn records(&self) -> ApplicationRecords {
        ApplicationRecords::new(Arc::new(self.open()), Arc::new(KeyEncryption::default()))
    }

    /// Replaces a record past the driver of applications.
    pub(super) async fn put(&self, id: &str, record: &str) {
        let store = self.open();
        let key = Key {
            kind: Kind::Application,
            id: id.to_owned(),
        };
        let there = store.get(&key).await.unwrap();
        let put = Change::Put {
            key,
            expected: there.map(|there| there.version),
            value: Zeroizing::new(record.to_owned()),
            ends: None,
        };
        store.commit(vec![put]).await.unwrap();
    }

    pub(super) async fn put_record(&self, record: &SecretHashes) {
        self.put("orders", &serde_json::to_string(record).unwrap())
            .await;
    }

    pub(super) async fn register(&self) {
        self.put_record(&SecretHashes::of("right")).await;
    }

    pub(super) async fn version(&self) -> Version {
        let mut held = self.open().list(Kind::Application).await.unwrap();
        held.remove(0).1.version
    }

    pub(super) fn lose(&self) {
        let _ = std::fs::remove_dir_all(self.path());
    }
}
