//! The store: versioned records that change together or not at all, and a log that only grows.
//!
//! The store is the truth, and memory a cache of it. It moves strings and does not interpret them.

pub(crate) mod at_rest;
pub(crate) mod clock;
#[cfg(test)]
pub(crate) mod conformance;
pub(crate) mod directory;
pub(crate) mod envelope_encryption;
pub(crate) mod location;
pub(crate) mod open_store;
pub(crate) mod redis;
#[cfg(any(test, feature = "simulation"))]
#[path = "../../tests/simulation/inside/store.rs"]
pub(crate) mod simulated;
pub(crate) mod sqlite;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use postern_process::exit::ExitError;
use postern_process::pauses::Pauses;
use postern_process::{named_enum, tasks};
use zeroize::Zeroizing;

/// Longer than the stores' own timeouts: an upper bound for any call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses between retries of work in the background. The first is short: logins are rejected hardly longer
/// than the store is unavailable.
pub(crate) const RETRIES: Pauses = Pauses {
    first: Duration::from_millis(200),
    last: Duration::from_secs(5),
};

named_enum! {
    /// Subject of a record. The names stand in the store.
    #[derive(Hash)]
    pub(crate) enum Kind {
        Application = "application",
        /// Values of which the installation has one each; two are the contract's.
        Installation = "installation",
        Session = "session",
        /// The `jti` of statements of other issuers, each with the digest of the first one that had it.
        Statement = "statement",
        /// The users of the last load of a file.
        Users = "users",
    }
}

impl Kind {
    /// Returns the length of the group, the first part of an id; ids of a group are read together. 0: all ids
    /// of the kind are one group.
    const fn group_length(self) -> usize {
        match self {
            Self::Session => 12,
            Self::Application | Self::Installation | Self::Statement | Self::Users => 0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) id: String,
}

impl Key {
    /// Returns the part of the id that names its group.
    pub(crate) fn group(&self) -> &str {
        self.id.get(..self.kind.group_length()).unwrap_or_default()
    }
}

/// One state of a record, opaque. A store may give a version again, for the same value: a change that was
/// decided by that value is right again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version(String);

/// A record as it was read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) value: Zeroizing<String>,
    pub(crate) version: Version,
}

/// Redacts the value, which may hold a secret.
impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stored").field(&self.version).finish()
    }
}

/// One part of a commit. `expected` is the version that was read; `None`: no record is there.
pub(crate) enum Change {
    Put {
        key: Key,
        expected: Option<Version>,
        value: Zeroizing<String>,
        /// Seconds since the epoch, by the store's clock; from then on the record is absent.
        ends: Option<i64>,
    },
    Delete {
        key: Key,
        expected: Version,
    },
    /// Changes nothing. The commit waits until this record, or its absence, is as safe as what is committed.
    Check {
        key: Key,
        expected: Option<Version>,
    },
    Append(NewEntry),
    /// Removes entries of the log, but never the last one, whose id must stay known. `expected` is an entry
    /// that was read: in another history the ids belong to other entries. Without ids it only expects that one.
    Remove {
        ids: Vec<i64>,
        expected: LogEntry,
    },
}

impl Change {
    /// Returns true for a change that only compares. A store without replicas skips it: there is nothing to wait
    /// for.
    pub(crate) const fn only_compares(&self) -> bool {
        match self {
            Self::Check { .. } => true,
            Self::Remove { ids, .. } => ids.is_empty(),
            _ => false,
        }
    }
}

/// An entry of the log before the store gives it an id.
#[derive(Debug, Clone)]
pub(crate) struct NewEntry {
    pub(crate) value: String,
    /// Seconds since the epoch, by the store's clock; from then on the store may remove the entry.
    pub(crate) ends: i64,
    /// The id of the entry will be larger than this, even in an older copy of the store.
    pub(crate) above: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Committed,
    /// Nothing was changed: a record has another version.
    Conflict,
}

/// An immutable entry of the log, which has the revocations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogEntry {
    /// The id that the store gave, larger than the id of every entry before.
    pub(crate) id: i64,
    pub(crate) value: String,
    pub(crate) ends: i64,
}

/// Store error. The texts name the location and hold no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreError {
    /// Unavailable for now; nothing was changed, and a retry may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// Access denied, or a value that must be neither used nor overwritten: nothing was changed, and
    /// an operator has to act.
    #[error("{0}")]
    Unusable(String),
    /// Other files stand in the place of the store's files: no read or write would count. An operator has to
    /// act, and start the server anew.
    #[error("{0}")]
    Replaced(String),
    /// Too many requests wait for the store; nothing was changed.
    #[error("too many calls of the store are waiting")]
    Busy,
    /// A commit whose response was lost: it took place or it did not.
    #[error("{0}; the change was made or it was not")]
    Unclear(String),
}

impl StoreError {
    /// Returns the error for a record or an entry that is not in the store any more as it was read.
    pub(crate) fn changed() -> Self {
        Self::Unavailable("the store has changed since it was read".to_owned())
    }
}

/// Runs a change of the store to its end, even if the client does not wait for it.
///
/// # Errors
/// The errors of the change; [`StoreError::Unclear`] if it panics.
pub(crate) async fn to_the_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let ended = tasks::spawn(change).await;
    ended.unwrap_or_else(|error| Err(StoreError::Unclear(error.to_string())))
}

/// Leaves out the text of the error, which may quote a secret.
impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        let class = error.classify();
        Self::Unavailable(format!("a value cannot be written as JSON: {class:?}"))
    }
}

/// Maps to exit codes: an unusable store is a configuration error, an unavailable one is not.
impl From<StoreError> for ExitError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unusable(line) | StoreError::Replaced(line) => {
                Self::Config(format!("--store: {line}"))
            }
            other => Self::Unavailable(format!("--store: {other}")),
        }
    }
}

/// Returns the changes that write a record of each kind, all of which have ended already.
fn ended_records() -> Vec<Change> {
    let ended = Kind::ALL.map(|kind| Change::Put {
        key: Key {
            kind,
            id: "check".to_owned(),
        },
        expected: None,
        value: Zeroizing::default(),
        ends: Some(0),
    });
    ended.into()
}

/// Every call ends by itself, within ten seconds.
#[async_trait]
pub(crate) trait Store: Send + Sync {
    /// Reads records as they are at one moment.
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>, StoreError>;

    async fn get(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        let held = self.read(std::slice::from_ref(key)).await?;
        Ok(held.into_iter().next().flatten())
    }

    /// Reads the ids of a group, or of the whole kind (an empty name): records that end first come first;
    /// records without an end follow in the order of their ids.
    async fn ids(&self, kind: Kind, group: &str) -> Result<Vec<String>, StoreError>;

    /// Makes all changes, or no change if one of them expects another version. A commit that changes nothing waits
    /// until what was read is as safe as what is committed; a store without replicas then compares nothing.
    async fn commit(&self, changes: Vec<Change>) -> Result<Outcome, StoreError>;

    /// Reads the entries of the log after `cursor`, the id of the last known entry (0: all), in their order.
    /// The last entry of the log stays beyond its end, so that its id stays known.
    async fn since(&self, cursor: i64) -> Result<Vec<LogEntry>, StoreError>;

    /// Returns the clock that all servers share, in seconds since the epoch.
    async fn now(&self) -> Result<i64, StoreError>;

    /// Makes a commit that leaves nothing.
    ///
    /// # Errors
    /// The reason why no commit can be made, though all records may be readable.
    async fn check(&self) -> Result<(), StoreError> {
        self.commit(ended_records()).await.map(drop)
    }

    /// Names the place of a record for an operator, without secrets.
    fn describe(&self, key: &Key) -> String;
}
