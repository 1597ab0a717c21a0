//! The files of a database as they stand in its directory. SQLite goes on with its open files when others
//! take their places, and plays a journal into any database beside it.
//!
//! The files are watched by name: closing a descriptor drops the locks that the process has on a file.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use rusqlite::OpenFlags;
use rustix::process::geteuid;

use super::database::{
    Identity, check, create, empty_journal, identity_with_journal, keep_journal, open,
    open_for_preview, prepare, store_error,
};
use super::{IfMissing, Opened, SqliteStore};
use crate::store::StoreError;
use crate::store::directory::{self, Access, NO_DIRECTORY, OF_ANOTHER, close, rejected, unusable};

const FILE_MODE: u32 = 0o600;

pub(super) const NO_DATABASE: &str = "is missing or empty, and what was committed may be in its \
     -wal: put it back, or remove store.db-wal and store.db-shm to begin a new store";
pub(super) const OTHER_JOURNAL: &str = "its -wal is of another store.db, as where a copy was \
     restored beside it: remove store.db-wal and store.db-shm to use the copy, or put the other \
     store.db back";
const REPLACED: &str = "the store was replaced, changed or removed under this program, which does \
     not use it any more: stop the server, restore the right store.db without the -wal and -shm of \
     another, and start it";

/// The file that a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inode {
    device: u64,
    number: u64,
}

/// The files in the directory at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Files {
    pub(super) database: Option<Database>,
    journal: Option<Inode>,
    pub(super) journal_bytes: u64,
    index: Option<Inode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Database {
    pub(super) inode: Inode,
    size: u64,
    /// The time of the last write.
    written_seconds: i64,
    written_nanoseconds: i64,
}

impl Files {
    /// Inspects the journal and its index; the caller adds the database, which is made before them.
    pub(super) fn beside(database: &Path) -> io::Result<Self> {
        let journal = metadata_if_there(&database.with_extension("db-wal"))?;
        let index = metadata_if_there(&database.with_extension("db-shm"))?;
        Ok(Self {
            database: None,
            journal: journal.as_ref().map(Inode::from),
            journal_bytes: journal.as_ref().map_or(0, Metadata::len),
            index: index.as_ref().map(Inode::from),
        })
    }

    fn database_inode(&self) -> Option<Inode> {
        self.database.map(|database| database.inode)
    }

    /// Returns true if a journal is left without its database: SQLite would remove it.
    pub(super) fn lack_database(&self) -> bool {
        let is_missing = match self.database {
            Some(database) => database.size == 0,
            None => true,
        };
        is_missing && (self.journal.is_some() || self.index.is_some())
    }

    /// Returns true if these are the files that were open at the moment of `before`.
    pub(super) fn are(&self, before: &Self) -> bool {
        self.database_inode() == before.database_inode()
            && self.journal == before.journal
            && self.index == before.index
    }

    /// Returns true if no other program has changed the files of a server since `before`: commands
    /// only append to the journal.
    pub(super) fn are_unchanged(&self, before: &Self) -> bool {
        self.are(before)
            && self.database == before.database
            && self.journal_bytes >= before.journal_bytes
    }

    /// Returns true if nothing has changed since `before`, except that files beside the database are gone.
    pub(super) fn lack_journal(&self, before: &Self) -> bool {
        let is_left = |now: Option<Inode>, before| now.is_none() || now == before;
        self.database == before.database
            && is_left(self.journal, before.journal)
            && is_left(self.index, before.index)
    }
}

impl From<&Metadata> for Inode {
    fn from(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            number: found.ino(),
        }
    }
}

impl From<&Metadata> for Database {
    fn from(found: &Metadata) -> Self {
        Self {
            inode: found.into(),
            size: found.size(),
            written_seconds: found.mtime(),
            written_nanoseconds: found.mtime_nsec(),
        }
    }
}

/// Returns the metadata of a file, not of the file that a link leads to; `None` for a missing file.
fn metadata_if_there(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl SqliteStore {
    /// Opens the files unless they are open already, and makes missing ones before a commit.
    pub(super) fn follow_files(
        &self,
        directory: &Path,
        opened: &mut Option<Opened>,
        missing: IfMissing,
    ) -> Result<(), StoreError> {
        let found = self.inspect(directory)?;
        match opened {
            Some(held) if held.is_in_place(&found, self.access) => return Ok(()),
            // A preview reads only: its later calls read the files that are there then.
            Some(_) if self.access == Access::Preview => *opened = None,
            Some(held) => return Err(self.lost(held, &found)),
            None => {}
        }
        // A missing database is not made anew beside a journal: SQLite would remove the journal's commits.
        if found.lack_database() {
            return Err(unusable(&self.path(), NO_DATABASE));
        }
        if found.database.is_none() {
            if matches!(missing, IfMissing::Empty) {
                return Ok(());
            }
            directory::create(directory)?;
            match create(&self.path()) {
                Ok(()) => {}
                // Another process has made the file meanwhile.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(rejected(&self.path(), &error)),
            }
        }
        *opened = self.open(directory)?;
        Ok(())
    }

    /// Checks after a call that its files are still in place, and empties the journal at times.
    pub(super) fn settle(&self, directory: &Path, held: &mut Opened) -> Result<(), StoreError> {
        let found = self.inspect(directory)?;
        if !held.is_in_place(&found, self.access) {
            return Err(self.lost(held, &found));
        }
        // The writes of this call must not look like a change by another program.
        held.files = found;
        if self.access == Access::Serve && held.is_journal_to_empty() {
            // A disk that does not take the pages fails the next commit.
            let _ = empty_journal(&held.connection);
            held.journal_emptied = Some(Instant::now());
            // Emptying has written the database, which the next call would take for a change.
            held.files = self.inspect(directory)?;
            held.journal_stays = held.files.journal_bytes > 0;
        }
        Ok(())
    }

    /// Gives up the open files: others stand in their places.
    fn lost(&self, held: &mut Opened, found: &Files) -> StoreError {
        if self.access == Access::Serve && !held.is_lost && found.lack_journal(&held.files) {
            // The journal's file is gone, but open here: no other program can play it.
            let _ = empty_journal(&held.connection);
        }
        held.is_lost = true;
        // Closing must not play the journal into the file that has taken the place.
        let _ = keep_journal(&held.connection, true);
        StoreError::Replaced(format!("{}: {REPLACED}", self.path().display()))
    }

    /// Inspects the files. The database is for its owner alone.
    pub(super) fn inspect(&self, directory: &Path) -> Result<Files, StoreError> {
        let path = self.path();
        let failed_at = |error: io::Error| match error.kind() {
            ErrorKind::NotADirectory => unusable(directory, NO_DIRECTORY),
            _ => rejected(&path, &error),
        };
        let mut files = Files::beside(&path).map_err(failed_at)?;
        // A link may lead to a file of another user, so it is not followed.
        let Some(metadata) = metadata_if_there(&path).map_err(failed_at)? else {
            return Ok(files);
        };
        if !metadata.is_file() {
            return Err(unusable(&path, "not a regular file"));
        }
        if metadata.uid() != geteuid().as_raw() {
            return Err(unusable(&path, OF_ANOTHER));
        }
        directory::inspect(directory, self.access)?;
        // Close the file only after the checks: file and directory are this user's own.
        if metadata.mode() & 0o077 != 0 {
            close(&path, FILE_MODE, self.access)?;
        }
        files.database = Some((&metadata).into());
        Ok(files)
    }

    /// Opens the database; `None` for one that a preview finds empty.
    fn open(&self, directory: &Path) -> Result<Option<Opened>, StoreError> {
        let path = self.path();
        let before = self.inspect(directory)?;
        let connection = match self.access {
            Access::Preview => open_for_preview(&path),
            Access::Serve | Access::Write => open(&path, OpenFlags::SQLITE_OPEN_READ_WRITE),
        };
        let failed = |error| store_error(&path, &error);
        let mut connection = connection.map_err(failed)?;
        match identity_with_journal(&path, &connection).map_err(failed)? {
            None => return Err(unusable(&path, OTHER_JOURNAL)),
            Some(Identity::Empty) if self.access == Access::Preview => return Ok(None),
            Some(Identity::Foreign(why)) => return Err(unusable(&path, &why)),
            Some(Identity::Ours | Identity::Empty) => {}
        }
        let prepared = match self.access {
            Access::Preview => Ok(()),
            // The check reads the whole file: a server does it once, commands do not.
            Access::Serve => check(&connection).and_then(|()| prepare(&mut connection)),
            Access::Write => prepare(&mut connection),
        };
        prepared.map_err(failed)?;
        let files = self.inspect(directory)?;
        // SQLite opened a name: another file may have taken the place since the check.
        if files.database_inode() != before.database_inode() {
            return Err(StoreError::Unavailable(format!(
                "{}: replaced while it was opened",
                path.display()
            )));
        }
        Ok(Some(Opened::new(connection, files)))
    }
}
