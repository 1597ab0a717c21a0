//! The file: its tables and settings, and the marks by which it is known.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::BUSY_TIMEOUT;
use crate::random;
use crate::store::StoreError;

/// "pstn": marks the database as this program's.
const APPLICATION_ID: i32 = 0x7073_746e;
const FORMAT: i32 = 1;
const SCHEMA_VERSION: &str = "schema_version";

/// Pause between retries: other processes change the journal within milliseconds.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The tables. `last` gives versions and ids of entries: no number is ever used twice.
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
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    Ok(())
}

/// Opens a database. The end of the connection leaves the journal as it is, unless [`prepare`] was called.
pub(super) fn open(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    keep_journal(&connection, true)?;
    Ok(connection)
}

/// Sets whether the last connection leaves the journal at its end, or plays it into the database.
pub(super) fn keep_journal(connection: &Connection, is_kept: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, is_kept)?;
    Ok(())
}

/// Opens a database for a preview. Without a journal no process has it open: it is opened as a file that does
/// not change, which leaves no file beside it.
pub(super) fn open_for_preview(path: &Path) -> rusqlite::Result<Connection> {
    if path.with_extension("db-wal").exists() {
        // `immutable` would ignore the journal with its commits.
        return open(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    }
    open_without_journal(path)
}

/// Opens a database as one that does not change, without its journal.
fn open_without_journal(path: &Path) -> rusqlite::Result<Connection> {
    // The percent sign first, as the other escapes contain it.
    let name = path.to_string_lossy().replace('%', "%25");
    let escaped = name.replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    open(Path::new(&format!("file:{escaped}?immutable=1")), flags)
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
        // A new file has neither id nor tables; tables without an id are another program's.
        (0, 0, 0) => Identity::Empty,
        (APPLICATION_ID, ..) => Identity::Foreign(format!(
            "a store of format {format}, which this version cannot read"
        )),
        _ => Identity::Foreign("a database of another program".to_owned()),
    })
}

/// Identifies a database; returns `None` where the journal beside it is of another one.
pub(super) fn identity_with_journal(
    path: &Path,
    connection: &Connection,
) -> rusqlite::Result<Option<Identity>> {
    // In one transaction: another process may be making the tables.
    let moment = connection.unchecked_transaction()?;
    if !is_journal_of(path, &moment)? {
        return Ok(None);
    }
    identity(&moment).map(Some)
}

/// Sets the journal, which stands in the file, and makes the tables of an empty database.
pub(super) fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    set_write_ahead(connection)?;
    // With a write-ahead log NORMAL may lose the last commits when the power fails.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Without it, values in clear from before an encryption would stay in freed pages.
    connection.pragma_update(None, "secure_delete", true)?;
    // No automatic checkpoint: a commit that begins the journal anew has to know it, see `mark`.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    keep_journal(connection, false)?;
    if matches!(identity(connection)?, Identity::Ours) {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have made the tables meanwhile.
    if matches!(identity(&transaction)?, Identity::Empty) {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
        mark(&transaction)?;
    }
    transaction.commit()
}

/// Bits of a mark that hold the mark before it.
const FORMER: u32 = 16;

/// Marks the journal that a commit begins, with a random number and the number of its database: SQLite cannot
/// distinguish the database from a restored copy, and would play the journal into the copy. The mark is the
/// schema's number, which may have any value, and is on the first page, so that the journal has it.
pub(super) fn mark(transaction: &Connection) -> rusqlite::Result<()> {
    let former = read_mark(transaction)? >> FORMER;
    // 15 bits, so that the whole number is positive.
    let new = i32::try_from(random::number() % 0x7fff).unwrap_or_default() + 1;
    transaction.pragma_update(None, SCHEMA_VERSION, (new << FORMER) | former)
}

pub(super) fn read_mark(connection: &Connection) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, SCHEMA_VERSION, |row| row.get(0))
}

/// Returns true if the journal was begun on this database; `moment` is a transaction that reads with the
/// journal, so that no other process empties it meanwhile.
fn is_journal_of(path: &Path, moment: &Connection) -> rusqlite::Result<bool> {
    let with_journal = read_mark(moment)?;
    let database = open_without_journal(path)?;
    // A process may have been killed while it played the journal: the file is shorter than its header says.
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
    let alone = read_mark(&database)?;
    // Earlier versions of this program marked no journal.
    let is_marked = with_journal >> FORMER != 0;
    let former = with_journal & ((1 << FORMER) - 1);
    Ok(!is_marked || with_journal == alone || former == alone >> FORMER)
}

/// Returns the mark if the next commit may begin the journal anew, as the database has all of it.
pub(super) fn mark_of_played(connection: &Connection) -> rusqlite::Result<Option<i32>> {
    // Read first: without a read, the number of pages may be from before another process emptied the journal.
    let mark = read_mark(connection)?;
    let Checkpoint { pages, played } = checkpoint(connection, "NOOP")?;
    if pages < 0 || pages != played {
        return Ok(None);
    }
    Ok(Some(mark))
}

/// Plays the journal into the database and empties it, so that a copy of the database alone is the whole
/// store. While another process reads, as for a backup, the journal is left for later.
pub(super) fn empty_journal(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::ZERO)?;
    let emptied = checkpoint(connection, "TRUNCATE");
    connection.busy_timeout(BUSY_TIMEOUT)?;
    emptied?;
    Ok(())
}

/// The outcome of a checkpoint; negative numbers where there is no journal.
struct Checkpoint {
    /// Pages in the journal.
    pages: i64,
    /// The pages among them that the database has.
    played: i64,
}

fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<Checkpoint> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        Ok(Checkpoint {
            pages: row.get(1)?,
            played: row.get(2)?,
        })
    })
}

/// Returns an error if the database is damaged.
pub(super) fn check(connection: &Connection) -> rusqlite::Result<()> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(
        rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
        Some("it is damaged, and a backup has to be restored".to_owned()),
    ))
}

/// Sets the write-ahead journal. Retries by itself: SQLite, which reads before it changes the journal, does
/// not wait for other processes that do the same to a new database.
fn set_write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let end = Instant::now() + BUSY_TIMEOUT;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if is_busy(&error) && Instant::now() < end => sleep(RETRY_INTERVAL),
            outcome => return outcome,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// Maps errors of calls other than commits: a failed transaction changes nothing.
pub(super) fn store_error(path: &Path, error: &rusqlite::Error) -> StoreError {
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
