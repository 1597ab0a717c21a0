//! A store in memory that tests can fill, empty, make unavailable and give another clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::super::sqlite::SqliteStore;
use crate::store::{Change, Key, Kind, LogEntry, Outcome, Store, StoreError, Stored};

pub(crate) struct Unsteady {
    store: Mutex<Arc<dyn Store>>,
    is_away: AtomicBool,
    /// Seconds by which its clock is ahead of this machine's.
    ahead: AtomicI64,
    /// The next reading of a log never ends.
    holds_next: AtomicBool,
    /// The next reading of a log fails.
    fails_next: AtomicBool,
    failure: Mutex<Option<Failure>>,
    panics: AtomicBool,
    commits: AtomicUsize,
}

/// The outcome of the next commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It is made, and its response is lost.
    ResponseLost,
    /// It is made, and neither its response nor a later one comes.
    NotAcknowledged,
    /// It is lost.
    RequestLost,
    /// It is made, and the next reading of the log fails.
    NotRead,
    /// It is made, and the next reading panics, as a library may.
    Panics,
}

impl Unsteady {
    pub(crate) fn new() -> Arc<Self> {
        Self::around(in_memory())
    }

    pub(crate) fn around(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store: Mutex::new(store),
            is_away: AtomicBool::new(false),
            ahead: AtomicI64::new(0),
            holds_next: AtomicBool::new(false),
            fails_next: AtomicBool::new(false),
            failure: Mutex::default(),
            panics: AtomicBool::new(false),
            commits: AtomicUsize::new(0),
        })
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    /// Returns the number of commits so far.
    pub(crate) fn commits(&self) -> usize {
        self.commits.load(Ordering::Relaxed)
    }

    pub(crate) fn fail(&self, failure: impl Into<Option<Failure>>) {
        *self.failure.lock() = failure.into();
    }

    pub(crate) fn set_ahead(&self, seconds: i64) {
        self.ahead.store(seconds, Ordering::Relaxed);
    }

    pub(crate) fn hold_next_reading(&self) {
        self.holds_next.store(true, Ordering::Relaxed);
    }

    pub(crate) fn holds_next_reading(&self) -> bool {
        self.holds_next.load(Ordering::Relaxed)
    }

    pub(crate) async fn raw(&self, key: &Key) -> Option<String> {
        let held = self.held().get(key).await.unwrap();
        held.map(|held| held.value.to_string())
    }

    /// Replaces a record past everything; `None` removes it.
    pub(crate) async fn plant(&self, key: Key, value: Option<&str>) {
        let expected = self.held().get(&key).await.unwrap().map(|it| it.version);
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
        let planted = self.held().commit(vec![change]).await;
        assert_eq!(planted, Ok(Outcome::Committed));
    }

    pub(crate) fn lose_everything(&self) {
        *self.store.lock() = in_memory();
    }

    fn held(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store.lock())
    }

    fn there(&self) -> Result<Arc<dyn Store>, StoreError> {
        if self.is_away.load(Ordering::Relaxed) {
            Err(StoreError::Unavailable("away".to_owned()))
        } else {
            Ok(self.held())
        }
    }
}

fn has_no_effect(change: &Change) -> bool {
    change.only_compares() || matches!(change, Change::Put { ends: Some(0), .. })
}

fn in_memory() -> Arc<dyn Store> {
    Arc::new(SqliteStore::in_memory().unwrap())
}

#[async_trait]
impl Store for Arc<Unsteady> {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>, StoreError> {
        let panics = self.panics.load(Ordering::Relaxed);
        assert!(!panics, "an index is out of bounds");
        self.there()?.read(keys).await
    }

    async fn ids(&self, kind: Kind, group: &str) -> Result<Vec<String>, StoreError> {
        self.there()?.ids(kind, group).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Outcome, StoreError> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        let failure = {
            let mut next = self.failure.lock();
            match *next {
                Some(Failure::NotAcknowledged) => *next,
                // It only makes sure of what is there.
                _ if changes.iter().all(has_no_effect) => None,
                _ => next.take(),
            }
        };
        let lost = || StoreError::Unclear("no response".to_owned());
        match failure {
            None => self.there()?.commit(changes).await,
            Some(Failure::ResponseLost | Failure::NotAcknowledged) => {
                self.there()?.commit(changes).await.unwrap();
                Err(lost())
            }
            Some(Failure::RequestLost) => Err(lost()),
            Some(Failure::NotRead) => {
                self.fails_next.store(true, Ordering::Relaxed);
                self.there()?.commit(changes).await
            }
            Some(Failure::Panics) => {
                self.panics.store(true, Ordering::Relaxed);
                self.there()?.commit(changes).await
            }
        }
    }

    async fn since(&self, cursor: i64) -> Result<Vec<LogEntry>, StoreError> {
        if self.holds_next.swap(false, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.fails_next.swap(false, Ordering::Relaxed) {
            return Err(StoreError::Unavailable("no response".to_owned()));
        }
        self.there()?.since(cursor).await
    }

    async fn now(&self) -> Result<i64, StoreError> {
        Ok(self.there()?.now().await? + self.ahead.load(Ordering::Relaxed))
    }

    fn describe(&self, key: &Key) -> String {
        key.id.clone()
    }
}
