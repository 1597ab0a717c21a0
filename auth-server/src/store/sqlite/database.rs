//! The file: its tables and settings, and the marks by which it is known.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::BUSY_TIMEOUT;
use crate::store::StoreError;

/// "pstn": marks the database as this program's.
const APPLICATION_ID: i32 = 0x7073_746e;
const FORMAT: i32 = 1;

/// Others change the journal within milliseconds.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// `last` gives versions and ids of entries: no number is ever used twice.
const SCHEMA: &str = "
CREATE TABLE last (number INTEGER NOT NULL);
INSERT INTO last VALUES (0);
CREATE TABLE record (
  kind TEXT NOT NULL, id TEXT NOT NULL, value TEXT NOT NULL, version INTEGER NOT NULL,
  ends INTEGER, PRIMARY KEY (kind, id)) WITHOUT ROWID;
CREATE INDEX record_end ON record (ends) WHERE ends IS NOT NULL;
CREATE TABLE log (id INTEGER PRIMARY KEY, value TEXT NOT NULL, ends INTEGER NOT NULL);
CREATE INDEX log_end ON log (ends);
";

/// Creates an empty file for its owner alone; SQLite would make it readable for others.
pub(super) fn create(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(path);
    created.map(drop)
}

pub(super) fn open(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// Opens a database that no process has open as one that does not change, which leaves no file
/// beside it.
pub(super) fn open_for_preview(path: &Path) -> rusqlite::Result<Connection> {
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

pub(super) enum Identity {
    Ours,
    Empty,
    Foreign(String),
}

pub(super) fn identity(connection: &Connection) -> rusqlite::Result<Identity> {
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
pub(super) fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    write_ahead(connection)?;
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

/// Retries by itself: SQLite, which reads before it changes the journal, does not wait for others that
/// do the same to a new database.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let end = Instant::now() + BUSY_TIMEOUT;
    loop {
        let changed = connection.pragma_update(None, "journal_mode", "WAL");
        let busy = matches!(&changed, Err(error) if is_busy(error));
        if !busy || Instant::now() >= end {
            return changed;
        }
        sleep(RETRY_INTERVAL);
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// Maps the errors of whatever is no commit: a failed transaction leaves nothing.
pub(super) fn failed(path: &Path, error: &rusqlite::Error) -> StoreError {
    let text = format!("{}: {error}", path.display());
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory,
        ) => StoreError::Unavailable(text),
        // No rights, a read-only file system, a broken or foreign file: an operator has to act.
        _ => StoreError::Unusable(text),
    }
}
