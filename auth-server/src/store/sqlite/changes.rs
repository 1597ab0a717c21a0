//! The changes of one commit.

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};

use super::database::{mark, mark_of_played, read_mark};
use super::{GET, Opened, stored};
use crate::store::{Change, Kind, LogEntry, NewEntry};

/// Max number of records with an end, which take some 100 MB.
const MAX_ENDING: u32 = 100_000;
/// Records with an end that are taken between two counts.
const ROOM: u32 = 256;

/// Removes entries of the log, but never the last one.
const REMOVE: &str = "DELETE FROM log WHERE id < (SELECT max(id) FROM log)";
const IS_THERE: &str = "SELECT 1 FROM log WHERE id = ?1 AND value = ?2 AND ends = ?3";
const COUNT: &str = "SELECT count(*) FROM record WHERE ends IS NOT NULL AND kind <> 'statement'";

/// Makes all changes, to be committed; `None` where a record has another version.
pub(super) fn change(
    Opened {
        connection, room, ..
    }: &mut Opened,
    changes: Vec<Change>,
) -> rusqlite::Result<Option<Transaction<'_>>> {
    // Before the transaction: within a transaction SQLite runs no checkpoint, even one that only counts.
    let played = mark_of_played(connection)?;
    // Immediate: SQLite does not wait for a lock to which a reading transaction is upgraded.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Before the count of `take_room`: records that have ended take no room.
    transaction.execute("DELETE FROM record WHERE ends <= unixepoch()", [])?;
    for change in &changes {
        if !is_expected(&transaction, change)? {
            // Dropping the transaction rolls it back, with the removal of ended records.
            return Ok(None);
        }
    }
    take_room(&transaction, room, &changes)?;
    for change in changes {
        apply(&transaction, change)?;
    }
    // After the changes: the entry that was the last one until now may be removed as well.
    transaction.execute(&format!("{REMOVE} AND ends <= unixepoch()"), [])?;
    // Another process may have begun the journal meanwhile, and marked it.
    if played == Some(read_mark(&transaction)?) {
        mark(&transaction)?;
    }
    Ok(Some(transaction))
}

/// Takes room for new records with an end: clients make such records, so their number has a limit. A commit
/// that fails afterwards keeps its room until the next count. Statements of other issuers take no room: an
/// issuer makes them, and would not send a logout again.
fn take_room(
    transaction: &Transaction<'_>,
    room: &mut usize,
    changes: &[Change],
) -> rusqlite::Result<()> {
    let is_new = |change: &&Change| match change {
        Change::Put {
            key,
            expected: None,
            // The records of a check have ended already, and do not stay.
            ends: Some(1..),
            ..
        } => key.kind != Kind::Statement,
        _ => false,
    };
    let new = changes.iter().filter(is_new).count();
    // Count the table only when the room of the last count is used up: a count reads every record.
    if *room < new {
        let taken: u32 = transaction.query_row(COUNT, [], |row| row.get(0))?;
        *room = MAX_ENDING.saturating_sub(taken).min(ROOM) as usize;
    }
    let Some(left) = room.checked_sub(new) else {
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL),
            Some(format!(
                "there are {MAX_ENDING} records with an end already"
            )),
        ));
    };
    *room = left;
    Ok(())
}

/// Compares the version in the store, before any change of the commit is made.
fn is_expected(transaction: &Transaction<'_>, change: &Change) -> rusqlite::Result<bool> {
    let (key, expected) = match change {
        Change::Put { key, expected, .. } | Change::Check { key, expected } => {
            (key, expected.as_ref())
        }
        Change::Delete { key, expected } => (key, Some(expected)),
        // An entry has no former version that could have changed.
        Change::Append(_) => return Ok(true),
        Change::Remove { expected, .. } => {
            let LogEntry { id, value, ends } = expected;
            return transaction.prepare(IS_THERE)?.exists((id, value, ends));
        }
    };
    Ok(transaction
        .query_row(GET, (key.kind.name(), &key.id), stored)
        .optional()?
        .map(|held| held.version)
        .as_ref()
        == expected)
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
                next_number(transaction, 0)?,
                ends
            ],
        ),
        Change::Delete { key, .. } => transaction.execute(
            "DELETE FROM record WHERE kind = ?1 AND id = ?2",
            (key.kind.name(), key.id),
        ),
        Change::Check { .. } => Ok(0),
        Change::Append(NewEntry { value, ends, above }) => {
            let id = next_number(transaction, above)?;
            transaction.execute("INSERT INTO log VALUES (?1, ?2, ?3)", (id, value, ends))
        }
        Change::Remove { ids, .. } => {
            let mut remove = transaction.prepare(&format!("{REMOVE} AND id = ?1"))?;
            for id in ids {
                remove.execute([id])?;
            }
            Ok(0)
        }
    }
    .map(drop)
}

fn next_number(transaction: &Transaction<'_>, above: i64) -> rusqlite::Result<i64> {
    let next = "UPDATE last SET number = max(number, ?1) + 1 RETURNING number";
    transaction.query_row(next, [above], |row| row.get(0))
}
