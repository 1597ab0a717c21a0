//! The store in a directory: an SQLite database, shared by a server and commands beside it.
//!
//! It is opened by the first call that needs it, and made by the first commit: reading a store that
//! is not there makes none.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use runtime::process::clock::unix_now;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior,
    params,
};
use rustix::process::geteuid;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::directory::{PrivateDirectory, rejected, unusable};
use super::{
    CALL_TIMEOUT, Change, Key, Kind, Log, LogEntry, Outcome, Store, StoreError, Stored, Version,
};

const FILE: &str = "store.db";
/// "pstn": marks the database as this program's.
const APPLICATION_ID: i32 = 0x7073_746e;
const FORMAT: i32 = 1;
/// Another process holds the lock for milliseconds; beyond this it is stalled. As long again a call
/// may wait for another one of this process, and both together end before the call's own bound:
/// what was given up is not done later.
const BUSY_TIMEOUT: Duration = Duration::from_secs(4);
/// Max number of records with an end, some 100 MB.
const MAX_ENDING: u32 = 100_000;
/// Records with an end that are taken between two counts.
const ROOM: u32 = 256;

/// `last` gives versions and ids of entries: no number is ever used twice.
const SCHEMA: &str = "
CREATE TABLE last (number INTEGER NOT NULL);
INSERT INTO last VALUES (0);
CREATE TABLE record (
  kind TEXT NOT NULL, id TEXT NOT NULL, value TEXT NOT NULL, version INTEGER NOT NULL,
  ends INTEGER, PRIMARY KEY (kind, id)) WITHOUT ROWID;
CREATE INDEX record_end ON record (ends) WHERE ends IS NOT NULL;
CREATE TABLE log (
  log TEXT NOT NULL, id INTEGER NOT NULL, value TEXT NOT NULL, ends INTEGER NOT NULL,
  PRIMARY KEY (log, id)) WITHOUT ROWID;
CREATE INDEX log_end ON log (ends);
";
const GET: &str = "SELECT value, version FROM record
 WHERE kind = ?1 AND id = ?2 AND (ends IS NULL OR ends > unixepoch())";
const LIST: &str = "SELECT value, version, id FROM record
 WHERE kind = ?1 AND (ends IS NULL OR ends > unixepoch()) ORDER BY id";
const IDS: &str = "SELECT id FROM record
 WHERE kind = ?1 AND id >= ?2 AND id < ?2 || char(1114111) AND (ends IS NULL OR ends > unixepoch())
 ORDER BY ends, id";
const COUNT: &str = "SELECT count(*) FROM record WHERE ends IS NOT NULL";
const SINCE: &str = "SELECT id, value, ends FROM log
 WHERE log = ?1 AND id > ?2 AND ends > unixepoch() ORDER BY id";

pub(crate) struct SqliteStore {
    directory: PrivateDirectory,
    access: Access,
    opened: Mutex<Option<Opened>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// A server's, or a command's.
    Write,
    /// Leaves the files as they are, and needs no right to write.
    Preview,
}

struct Opened {
    connection: Connection,
    /// Device and inode: the file may be removed under a running server.
    file: (u64, u64),
    /// Records with an end for which there is room; at 0 the store counts them.
    room: usize,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteStore").field(&self.path()).finish()
    }
}

impl SqliteStore {
    pub(crate) fn new(directory: PathBuf, access: Access) -> Arc<Self> {
        Arc::new(Self {
            directory: PrivateDirectory::new(directory),
            access,
            opened: Mutex::default(),
        })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(FILE)
    }

    /// Runs `call` beside the asynchronous threads: it waits for the disk and for locks. Returns `None`
    /// where there is no database.
    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        missing: Missing,
        call: impl FnOnce(&mut Opened) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        let store = Arc::clone(self);
        let running = tokio::task::spawn_blocking(move || store.blocking(missing, call));
        let unclear = |cause: &dyn fmt::Display| {
            let text = format!("{}: {cause}", self.path().display());
            match missing {
                Missing::IsMade => StoreError::Unclear(text),
                Missing::IsEmpty => StoreError::Unavailable(text),
            }
        };
        match timeout(CALL_TIMEOUT, running).await {
            Ok(outcome) => outcome.map_err(|error| unclear(&error))?,
            Err(_) => Err(unclear(&"no response")),
        }
    }

    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        let path = self.path();
        self.run(Missing::IsEmpty, move |opened| {
            query(&opened.connection).map_err(|error| failed(&path, &error))
        })
        .await
    }

    fn blocking<T>(
        &self,
        missing: Missing,
        call: impl FnOnce(&mut Opened) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let Some(mut opened) = self.opened.try_lock_for(BUSY_TIMEOUT) else {
            let text = format!("{}: other calls do not end", self.path().display());
            return Err(StoreError::Unavailable(text));
        };
        let file = self.inspect()?;
        if opened.as_ref().map(|it| it.file) != file {
            *opened = None;
        }
        if file.is_none() {
            if matches!(missing, Missing::IsEmpty) {
                return Ok(None);
            }
            self.directory.create()?;
            match create(&self.path()) {
                // Another process was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => created.map_err(|error| rejected(&self.path(), &error))?,
            }
        }
        if opened.is_none() {
            *opened = self.open()?;
        }
        opened.as_mut().map(call).transpose()
    }

    /// Returns device and inode of the file, which is for its owner alone. It is checked without
    /// being opened: closing a descriptor drops the locks that the process has on the file.
    fn inspect(&self) -> Result<Option<(u64, u64)>, StoreError> {
        let path = self.path();
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found.map_err(|error| rejected(&path, &error))?,
        };
        if !metadata.is_file() {
            return Err(unusable(&path, "not a regular file"));
        }
        if metadata.mode() & 0o077 != 0 {
            let why = "others may read or write this file; chmod 600 it";
            return Err(unusable(&path, why));
        }
        if metadata.uid() != geteuid().as_raw() {
            return Err(unusable(&path, "this file belongs to another user"));
        }
        self.directory.inspect()?;
        Ok(Some((metadata.dev(), metadata.ino())))
    }

    /// Opens the database; `None` for one that a preview finds empty.
    fn open(&self) -> Result<Option<Opened>, StoreError> {
        let path = self.path();
        let connection = match self.access {
            Access::Write => open(&path, OpenFlags::SQLITE_OPEN_READ_WRITE),
            Access::Preview => open_for_preview(&path),
        };
        let connection = connection.map_err(|error| failed(&path, &error))?;
        let Some(file) = self.inspect()? else {
            return Ok(None);
        };
        match identity(&connection).map_err(|error| failed(&path, &error))? {
            Identity::Empty if self.access == Access::Preview => return Ok(None),
            Identity::Foreign(why) => return Err(unusable(&path, &why)),
            Identity::Ours | Identity::Empty => {}
        }
        let mut opened = Opened {
            connection,
            file,
            room: 0,
        };
        if self.access == Access::Write {
            prepare(&mut opened.connection).map_err(|error| failed(&path, &error))?;
        }
        Ok(Some(opened))
    }
}

/// Effect of a call where there is no database.
#[derive(Debug, Clone, Copy)]
enum Missing {
    IsEmpty,
    IsMade,
}

#[async_trait]
impl Store for Arc<SqliteStore> {
    async fn get(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        let Key { kind, id } = key.clone();
        let held = self.read(move |connection| {
            let held = connection.query_row(GET, (kind.name(), id), stored);
            held.optional()
        });
        held.await.map(Option::flatten)
    }

    async fn list(&self, kind: Kind) -> Result<Vec<(String, Stored)>, StoreError> {
        let held = self.read(move |connection| {
            let read = |row: &Row<'_>| Ok((row.get(2)?, stored(row)?));
            rows(connection, LIST, [kind.name()], read)
        });
        held.await.map(Option::unwrap_or_default)
    }

    async fn ids(&self, kind: Kind, group: &str) -> Result<Vec<String>, StoreError> {
        let group = group.to_owned();
        let ids = self
            .read(move |connection| rows(connection, IDS, (kind.name(), group), |row| row.get(0)));
        ids.await.map(Option::unwrap_or_default)
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Outcome, StoreError> {
        if self.access == Access::Preview {
            return Err(unusable(&self.path(), "only read"));
        }
        let path = self.path();
        let done = self.run(Missing::IsMade, move |opened| {
            let prepared = change(opened, changes).map_err(|error| failed(&path, &error))?;
            let Some(transaction) = prepared else {
                return Ok(Outcome::Conflict);
            };
            match transaction.commit() {
                Ok(()) => Ok(Outcome::Committed),
                // The disk failed while it was written.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
                    Err(StoreError::Unclear(format!("{}: {error}", path.display())))
                }
                Err(error) => Err(failed(&path, &error)),
            }
        });
        let lost = || StoreError::Unavailable(format!("{}: it was removed", self.path().display()));
        done.await?.ok_or_else(lost)
    }

    async fn since(&self, log: Log, cursor: i64) -> Result<Vec<LogEntry>, StoreError> {
        let held = self.read(move |connection| {
            rows(connection, SINCE, params![log.name(), cursor], |row| {
                Ok(LogEntry {
                    id: row.get(0)?,
                    value: row.get(1)?,
                    ends: row.get(2)?,
                })
            })
        });
        held.await.map(Option::unwrap_or_default)
    }

    /// Returns this machine's clock: all who open the file run on it.
    async fn now(&self) -> Result<i64, StoreError> {
        Ok(unix_now())
    }

    fn describe(&self, _: &Key) -> String {
        self.path().display().to_string()
    }
}

fn rows<T>(
    connection: &Connection,
    query: &str,
    values: impl rusqlite::Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection
        .prepare(query)?
        .query_map(values, read)?
        .collect()
}

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok(Stored {
        value: Zeroizing::new(row.get(0)?),
        version: Version(row.get::<_, i64>(1)?.to_string()),
    })
}

/// Makes all changes, to be committed; `None` where a record has another version.
fn change(
    Opened {
        connection, room, ..
    }: &mut Opened,
    changes: Vec<Change>,
) -> rusqlite::Result<Option<Transaction<'_>>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("DELETE FROM record WHERE ends <= unixepoch()", [])?;
    transaction.execute("DELETE FROM log WHERE ends <= unixepoch()", [])?;
    for change in &changes {
        if !is_expected(&transaction, change)? {
            return Ok(None);
        }
    }
    take_room(&transaction, room, &changes)?;
    for change in changes {
        apply(&transaction, change)?;
    }
    Ok(Some(transaction))
}

/// Takes room for new records that end by themselves: clients make them. What is not committed then
/// takes it until the next count.
fn take_room(
    transaction: &Transaction<'_>,
    room: &mut usize,
    changes: &[Change],
) -> rusqlite::Result<()> {
    let is_new = |change: &&Change| {
        matches!(
            change,
            Change::Put {
                expected: None,
                ends: Some(_),
                ..
            }
        )
    };
    let new = changes.iter().filter(is_new).count();
    if *room < new {
        let taken: u32 = transaction.query_row(COUNT, [], |row| row.get(0))?;
        *room = MAX_ENDING.saturating_sub(taken).min(ROOM) as usize;
    }
    let Some(left) = room.checked_sub(new) else {
        let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
        let text = format!("there are {MAX_ENDING} records with an end already");
        return Err(rusqlite::Error::SqliteFailure(full, Some(text)));
    };
    *room = left;
    Ok(())
}

/// Compares before anything of the commit is written: its own changes do not count.
fn is_expected(transaction: &Transaction<'_>, change: &Change) -> rusqlite::Result<bool> {
    let (key, expected) = match change {
        Change::Put { key, expected, .. } | Change::Check { key, expected } => {
            (key, expected.as_ref())
        }
        Change::Delete { key, expected } => (key, Some(expected)),
        Change::Append { .. } => return Ok(true),
    };
    let held = transaction
        .query_row(GET, (key.kind.name(), &key.id), stored)
        .optional()?;
    Ok(held.map(|held| held.version).as_ref() == expected)
}

fn apply(transaction: &Transaction<'_>, change: Change) -> rusqlite::Result<()> {
    match change {
        Change::Put {
            key, value, ends, ..
        } => transaction.execute(
            "INSERT OR REPLACE INTO record VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                key.kind.name(),
                key.id,
                value.as_str(),
                next_number(transaction)?,
                ends
            ],
        ),
        Change::Delete { key, .. } => transaction.execute(
            "DELETE FROM record WHERE kind = ?1 AND id = ?2",
            (key.kind.name(), key.id),
        ),
        Change::Check { .. } => Ok(0),
        Change::Append { log, value, ends } => transaction.execute(
            "INSERT INTO log VALUES (?1, ?2, ?3, ?4)",
            (log.name(), next_number(transaction)?, value, ends),
        ),
    }
    .map(drop)
}

fn next_number(transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
    let next = "UPDATE last SET number = number + 1 RETURNING number";
    transaction.query_row(next, [], |row| row.get(0))
}

/// Creates an empty file for its owner alone; SQLite would make it readable for others.
fn create(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(path);
    created.map(drop)
}

fn open(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// Opens a database that no process has open as one that does not change, which leaves no file
/// beside it.
fn open_for_preview(path: &Path) -> rusqlite::Result<Connection> {
    if path.with_extension("db-wal").exists() {
        return open(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    }
    let escaped: String = path.to_string_lossy().replace('%', "%25");
    let address = format!(
        "file:{}?immutable=1",
        escaped.replace('?', "%3f").replace('#', "%23")
    );
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    open(Path::new(&address), flags)
}

enum Identity {
    Ours,
    Empty,
    Foreign(String),
}

fn identity(connection: &Connection) -> rusqlite::Result<Identity> {
    let number = |query: &str| connection.query_row(query, [], |row| row.get::<_, i32>(0));
    let id = number("PRAGMA application_id")?;
    let format = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    Ok(match (id, format, tables) {
        (APPLICATION_ID, FORMAT, _) => Identity::Ours,
        (0, 0, 0) => Identity::Empty,
        (APPLICATION_ID, ..) => Identity::Foreign(format!(
            "a store of format {format}, which this version cannot read"
        )),
        _ => Identity::Foreign("a database of another program".to_owned()),
    })
}

/// Sets the journal, which stands in the file, and makes the tables of an empty database.
fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    if matches!(identity(connection)?, Identity::Ours) {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    if matches!(identity(&transaction)?, Identity::Empty) {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    transaction.commit()
}

/// Maps the errors of whatever is no commit: a failed transaction leaves nothing.
fn failed(path: &Path, error: &rusqlite::Error) -> StoreError {
    let text = format!("{}: {error}", path.display());
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory,
        ) => StoreError::Unavailable(text),
        // No rights, a read-only file system, a broken or foreign file: an operator has to act.
        _ => StoreError::Unusable(text),
    }
}

#[cfg(test)]
mod tests;
