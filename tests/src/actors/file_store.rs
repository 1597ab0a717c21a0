//! The database of a `file:` store, past the programs.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};

/// The contract's private value.
pub const PRIVATE: &str = "private";
/// The contract's public value.
pub const PUBLIC: &str = "public";
/// The rest of the key ring.
pub const RING: &str = "ring";

/// Returns the file in the store's directory.
pub fn database(directory: &Path) -> PathBuf {
    directory.join("store.db")
}

/// Returns the keys' value `id`.
///
/// # Panics
/// Where no server has made the store.
pub fn value(directory: &Path, id: &str) -> Option<String> {
    let query = "SELECT value FROM record WHERE kind = 'installation' AND id = ?1";
    let held = open(directory).query_row(query, [id], |row| row.get(0));
    held.optional().expect("a store")
}

/// Replaces the keys' value `id`.
///
/// # Panics
/// Where no server has made the store.
pub fn put(directory: &Path, id: &str, value: &str) {
    let statements = "
        UPDATE last SET number = number + 1;
        DELETE FROM record WHERE kind = 'installation' AND id = ?1;
        INSERT INTO record SELECT 'installation', ?1, ?2, number, NULL FROM last;";
    let mut database = open(directory);
    let change = database.transaction().expect("a store");
    for statement in statements.split(';').filter(|it| !it.trim().is_empty()) {
        let mut prepared = change.prepare(statement).expect("a store");
        let values = [id, value];
        let count = prepared.parameter_count();
        let values = values.get(..count).expect("two values at most");
        let done = prepared.execute(rusqlite::params_from_iter(values));
        done.expect("a change");
    }
    change.commit().expect("a change");
}

/// Removes the keys' value `id`.
///
/// # Panics
/// Where no server has made the store.
pub fn remove(directory: &Path, id: &str) {
    let statement = "DELETE FROM record WHERE kind = 'installation' AND id = ?1";
    let removed = open(directory).execute(statement, [id]);
    assert_eq!(removed, Ok(1));
}

fn open(directory: &Path) -> Connection {
    let database = Connection::open(database(directory)).expect("a database");
    let waits = database.busy_timeout(std::time::Duration::from_secs(10));
    waits.expect("a setting");
    database
}
