//! The store in a directory, shared by a server and commands beside it, or in the memory of one server:
//! an SQLite database.
//!
//! The file is opened by the first call that needs it, and made by the first commit: reading a missing store
//! makes no file. A program does not use the store any more once its file was replaced.

mod changes;
mod database;
mod files;

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use postern_process::clock::{ClockWatch, unix_now};
use postern_process::files::owner_only_file::UnfinishedFile;
use postern_process::files::with_suffix;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row};
use tokio::time::timeout;
use tracing::warn;
use zeroize::Zeroizing;

use self::changes::change;
use self::database::{keep_journal, mark, open, prepare, store_error};
use self::files::Files;
use super::directory::{self, Access, rejected, unusable};
use super::{
    CALL_TIMEOUT, Change, Key, Kind, LogEntry, Outcome, Store, StoreError, Stored, Version,
    ended_records,
};

const FILE: &str = "store.db";
/// The end of the name of a backup that is being written.
const UNFINISHED: &str = ".unfinished";
/// Wait for the lock of another process, which holds it for milliseconds unless it is stalled. A call may
/// wait as long for another call of this process. Both waits end before the call's own timeout, so that a
/// call that was given up is not carried out later.
const BUSY_TIMEOUT: Duration = Duration::from_secs(4);
/// Interval in which a server empties the journal after a call: emptying takes as long as a few commits.
const JOURNAL_INTERVAL: Duration = Duration::from_secs(1);
/// Length at which the journal is emptied earlier: the commits of a second could fill a small volume.
const JOURNAL_BYTES: u64 = 1024 * 1024;
/// Commits of one check, without a pause in which the journal is emptied: they take three times the pages of
/// one, and a logout or a login takes less than twice as many.
const CHECK_COMMITS: usize = 4;

const GET: &str = "SELECT value, version FROM record
 WHERE kind = ?1 AND id = ?2 AND (ends IS NULL OR ends > unixepoch())";
const IDS: &str = "SELECT id FROM record
 WHERE kind = ?1 AND id >= ?2 AND id < ?2 || char(1114111) AND (ends IS NULL OR ends > unixepoch())
 ORDER BY ends, id";
const SINCE: &str = "SELECT id, value, ends FROM log WHERE id > ?1 ORDER BY id";

/// The name in messages for the file of a store in memory.
const MEMORY: &str = "memory";

pub(crate) struct SqliteStore {
    /// The directory; `None` for a store in memory.
    directory: Option<PathBuf>,
    access: Access,
    /// A server's lock on the directory.
    _serving: Option<File>,
    opened: Mutex<Option<Opened>>,
}

struct Opened {
    connection: Connection,
    /// The files after the last call; those of a store in memory stay the same.
    files: Files,
    /// True once other files stood in their place: no other program would find what this one writes.
    is_lost: bool,
    journal_emptied: Option<Instant>,
    /// True if the last emptying left a part of the journal.
    journal_stays: bool,
    clock: ClockWatch,
    /// Records with an end for which there is room; at 0 the store counts them.
    room: usize,
}

impl Opened {
    fn new(connection: Connection, files: Files) -> Self {
        Self {
            connection,
            files,
            is_lost: false,
            journal_emptied: None,
            journal_stays: false,
            clock: ClockWatch::default(),
            room: 0,
        }
    }

    fn is_in_place(&self, now: &Files, access: Access) -> bool {
        match access {
            // Never again, even if the former files come back, which lack all changes since.
            _ if self.is_lost => false,
            Access::Serve => now.are_unchanged(&self.files),
            // A command runs beside a server, which writes.
            Access::Write | Access::Preview => now.are(&self.files),
        }
    }

    fn is_journal_to_empty(&self) -> bool {
        let is_early = |last: Instant| last.elapsed() < JOURNAL_INTERVAL;
        match self.files.journal_bytes {
            0 => false,
            // Not after each call once it failed: with a full disk every call would wait for it.
            JOURNAL_BYTES.. if !self.journal_stays => true,
            _ => !self.journal_emptied.is_some_and(is_early),
        }
    }
}

/// The end of a store plays the journal into the database, unless another file is in its place.
impl Drop for SqliteStore {
    fn drop(&mut self) {
        let mut opened = self.opened.get_mut().take();
        // SQLite plays the journal as the connection closes, into whatever stands under the name.
        if let (Some(directory), Some(_)) = (&self.directory, &opened) {
            let _ = self.follow_files(directory, &mut opened, IfMissing::Empty);
        }
    }
}

impl SqliteStore {
    pub(crate) fn new(directory: PathBuf, access: Access) -> Arc<Self> {
        Arc::new(Self {
            directory: Some(directory),
            access,
            _serving: None,
            opened: Mutex::default(),
        })
    }

    /// Makes a store that ends with the process.
    pub(crate) fn in_memory() -> Result<Arc<Self>, StoreError> {
        let failed = |error| store_error(Path::new(MEMORY), &error);
        let mut connection = Connection::open_in_memory().map_err(failed)?;
        // The tables are made at once: there is no file whose absence could mean an empty store.
        prepare(&mut connection).map_err(failed)?;
        Ok(Arc::new(Self {
            directory: None,
            access: Access::Serve,
            _serving: None,
            opened: Mutex::new(Some(Opened::new(connection, Files::default()))),
        }))
    }

    /// Opens the store for a server: makes the directory and locks out other servers.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if another server uses the directory for longer than `wait`.
    pub(crate) fn for_serving(directory: PathBuf, wait: Duration) -> Result<Arc<Self>, StoreError> {
        directory::create(&directory)?;
        let serving = directory::lock_for_serving(&directory, wait)?;
        Ok(Arc::new(Self {
            directory: Some(directory),
            access: Access::Serve,
            _serving: Some(serving),
            opened: Mutex::default(),
        }))
    }

    /// Copies the whole store into a new file, also beside a server that uses the store. Until the copy is
    /// whole it has another name.
    pub(crate) fn backup(&self, file: &Path) -> Result<(), StoreError> {
        // An absolute path, because some names have a meaning of their own for SQLite.
        let file = std::path::absolute(file).map_err(|error| rejected(file, &error))?;
        check_is_free(&file)?;
        let copy = UnfinishedFile::create(with_suffix(&file, UNFINISHED))
            .map_err(|error| rejected(&file, &error))?;
        self.copy_into(&copy.path)?;
        // Another program may have made a file of this name meanwhile.
        check_is_free(&file)?;
        copy.rename(&file).map_err(|error| rejected(&file, &error))
    }

    fn copy_into(&self, file: &Path) -> Result<(), StoreError> {
        let copied = self.blocking(IfMissing::Empty, |opened| {
            copy(&opened.connection, file).map_err(|error| store_error(file, &error))
        });
        match copied? {
            Some(()) => Ok(()),
            None => Err(StoreError::Unavailable(format!(
                "{}: there is no store yet",
                self.path().display()
            ))),
        }
    }

    fn path(&self) -> PathBuf {
        match &self.directory {
            Some(directory) => directory.join(FILE),
            None => MEMORY.into(),
        }
    }

    /// Runs `call` on a thread for blocking work, because it waits for the disk and for locks. Returns `None`
    /// where there is no database.
    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        missing: IfMissing,
        call: impl FnOnce(&mut Opened) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        let store = Arc::clone(self);
        let running = tokio::task::spawn_blocking(move || store.blocking(missing, call));
        let unclear = |cause: &dyn fmt::Display| {
            let text = format!("{}: {cause}", self.path().display());
            match missing {
                // A commit may have taken place before the task was given up; a read changes nothing.
                IfMissing::Create => StoreError::Unclear(text),
                IfMissing::Empty => StoreError::Unavailable(text),
            }
        };
        match timeout(CALL_TIMEOUT, running).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Err(unclear(&error)),
            Err(_) => Err(unclear(&"no response")),
        }
    }

    /// Reads rows; no rows where there is no database.
    async fn query<T: Send + Default + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let path = self.path();
        self.run(IfMissing::Empty, move |opened| {
            query(&opened.connection).map_err(|error| store_error(&path, &error))
        })
        .await
        .map(Option::unwrap_or_default)
    }

    fn blocking<T>(
        &self,
        missing: IfMissing,
        call: impl FnOnce(&mut Opened) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        // One connection, so one call at a time. The wait is bounded: with a disk that hangs threads must
        // not pile up.
        let Some(mut opened) = self.opened.try_lock_for(BUSY_TIMEOUT) else {
            return Err(StoreError::Unavailable(format!(
                "{}: other calls do not end",
                self.path().display()
            )));
        };
        if let Some(directory) = &self.directory {
            // Before each call: a write into a replaced or removed file would be lost without an error.
            self.follow_files(directory, &mut opened, missing)?;
        }
        let Some(held) = opened.as_mut() else {
            return Ok(None);
        };
        if let Some(jump_seconds) = held.clock.jump(unix_now(), Instant::now()) {
            warn!(
                jump_seconds,
                "this machine's clock has jumped: what ended by it, such as revocations, is gone even \
                 if it is set back"
            );
        }
        let done = call(held)?;
        if let Some(directory) = &self.directory {
            self.settle(directory, held)
                .map_err(|error| match missing {
                    // The call may have written into files that are not in place any more.
                    IfMissing::Create => StoreError::Unclear(error.to_string()),
                    IfMissing::Empty => error,
                })?;
        }
        Ok(Some(done))
    }
}

fn copy(store: &Connection, file: &Path) -> rusqlite::Result<()> {
    // `VACUUM INTO` is one read transaction: the copy is of one moment, though a server may write.
    store.execute("VACUUM INTO ?1", [file.to_str()])?;
    // The copy gets a mark of its own: the store's journal, and the next one, are not the copy's.
    let copied = open(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    keep_journal(&copied, false)?;
    mark(&copied)
}

/// Checks that no file has the name of the backup, or of its journal, which SQLite would play into it.
fn check_is_free(file: &Path) -> Result<(), StoreError> {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let taken = with_suffix(file, suffix);
        if fs::symlink_metadata(&taken).is_ok() {
            return Err(unusable(&taken, "exists, and a backup overwrites nothing"));
        }
    }
    Ok(())
}

/// Effect of a call where there is no database.
#[derive(Debug, Clone, Copy)]
enum IfMissing {
    Empty,
    Create,
}

#[async_trait]
impl Store for Arc<SqliteStore> {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>, StoreError> {
        let owned_keys = keys.to_vec();
        let held = self.query(move |connection| {
            let moment = connection.unchecked_transaction()?;
            let mut records = Vec::new();
            for Key { kind, id } in owned_keys {
                records.push(
                    moment
                        .query_row(GET, (kind.name(), id), stored)
                        .optional()?,
                );
            }
            Ok(records)
        });
        let mut held = held.await?;
        // Without a database no record was read.
        held.resize(keys.len(), None);
        Ok(held)
    }

    async fn ids(&self, kind: Kind, group: &str) -> Result<Vec<String>, StoreError> {
        let group = group.to_owned();
        self.query(move |connection| rows(connection, IDS, (kind.name(), group), |row| row.get(0)))
            .await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Outcome, StoreError> {
        if self.access == Access::Preview {
            return Err(unusable(&self.path(), "only read"));
        }
        if changes.iter().all(Change::only_compares) {
            return Ok(Outcome::Committed);
        }
        let path = self.path();
        let done = self.run(IfMissing::Create, move |opened| {
            let prepared = change(opened, changes).map_err(|error| store_error(&path, &error))?;
            let Some(transaction) = prepared else {
                return Ok(Outcome::Conflict);
            };
            match transaction.commit() {
                Ok(()) => Ok(Outcome::Committed),
                // The disk failed while the commit was written.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
                    Err(StoreError::Unclear(format!("{}: {error}", path.display())))
                }
                Err(error) => Err(store_error(&path, &error)),
            }
        });
        match done.await? {
            Some(outcome) => Ok(outcome),
            None => Err(StoreError::Unavailable(format!(
                "{}: it was removed",
                self.path().display()
            ))),
        }
    }

    async fn since(&self, cursor: i64) -> Result<Vec<LogEntry>, StoreError> {
        let entry = |row: &Row<'_>| {
            Ok(LogEntry {
                id: row.get(0)?,
                value: row.get(1)?,
                ends: row.get(2)?,
            })
        };
        self.query(move |connection| rows(connection, SINCE, [cursor], entry))
            .await
    }

    /// Returns this machine's clock: all programs that open the file run on this machine.
    async fn now(&self) -> Result<i64, StoreError> {
        Ok(unix_now())
    }

    /// Takes more room than the commit of a request, and then leaves it to requests: without more room, a
    /// check would fit into the journal of the last check even on a full disk.
    async fn check(&self) -> Result<(), StoreError> {
        for _ in 0..CHECK_COMMITS {
            self.commit(ended_records()).await?;
        }
        self.run(IfMissing::Empty, |opened| {
            opened.journal_emptied = None;
            Ok(())
        })
        .await
        .map(drop)
    }

    fn describe(&self, Key { kind, id }: &Key) -> String {
        format!("{}: {} {id}", self.path().display(), kind.name())
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

#[cfg(test)]
mod tests;
