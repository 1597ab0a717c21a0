//! A store in a directory that tests can fill, empty, make unavailable and give another clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use async_trait::async_trait;
use zeroize::Zeroizing;

use super::super::sqlite::{Access, SqliteStore};
use crate::store::{Change, Key, Kind, Log, LogEntry, Outcome, Store, StoreError, Stored};

#[derive(Debug)]
pub(crate) struct Unsteady {
    store: Arc<SqliteStore>,
    directory: tempfile::TempDir,
    is_away: AtomicBool,
    /// Seconds by which its clock is ahead of this machine's.
    ahead: AtomicI64,
}

impl Unsteady {
    pub(crate) fn new() -> Arc<Self> {
        let directory = tempfile::tempdir().unwrap();
        Arc::new(Self {
            store: SqliteStore::new(directory.path().join("data"), Access::Write),
            directory,
            is_away: AtomicBool::new(false),
            ahead: AtomicI64::new(0),
        })
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    pub(crate) fn set_ahead(&self, seconds: i64) {
        self.ahead.store(seconds, Ordering::Relaxed);
    }

    pub(crate) async fn raw(&self, key: &Key) -> Option<String> {
        let held = self.store.get(key).await.unwrap();
        held.map(|held| held.value.to_string())
    }

    /// Replaces a record past everything; `None` removes it.
    pub(crate) async fn plant(&self, key: Key, value: Option<&str>) {
        let expected = self.store.get(&key).await.unwrap().map(|it| it.version);
        let change = match (value, expected) {
            (Some(value), expected) => Change::Put {
                key,
                expected,
                value: Zeroizing::new(value.to_owned()),
                ends: None,
            },
            (None, Some(expected)) => Change::Delete { key, expected },
            (None, None) => return,
        };
        let planted = self.store.commit(vec![change]).await;
        assert_eq!(planted, Ok(Outcome::Committed));
    }

    pub(crate) fn lose_everything(&self) {
        let _ = std::fs::remove_dir_all(self.directory.path().join("data"));
    }

    fn there(&self) -> Result<(), StoreError> {
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable("away".to_owned())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Arc<Unsteady> {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>, StoreError> {
        self.there()?;
        self.store.read(keys).await
    }

    async fn list(&self, kind: Kind) -> Result<Vec<(String, Stored)>, StoreError> {
        self.there()?;
        self.store.list(kind).await
    }

    async fn ids(&self, kind: Kind, group: &str) -> Result<Vec<String>, StoreError> {
        self.there()?;
        self.store.ids(kind, group).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Outcome, StoreError> {
        self.there()?;
        self.store.commit(changes).await
    }

    async fn since(&self, log: Log, cursor: i64) -> Result<Vec<LogEntry>, StoreError> {
        self.there()?;
        self.store.since(log, cursor).await
    }

    async fn now(&self) -> Result<i64, StoreError> {
        self.there()?;
        Ok(self.store.now().await? + self.ahead.load(Ordering::Relaxed))
    }

    fn describe(&self, key: &Key) -> String {
        key.id.clone()
    }
}
