//! A directory of small files for their owner only: modes 0700 and 0600, replaced atomically.
//!
//! Files that others could have read or changed are rejected, not repaired: an operator has to look
//! at them.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use runtime::files::lock_file;
use runtime::files::owner_only_file::{self, PrivateFileError, describe};
use rustix::fs::{Access, PROC_SUPER_MAGIC, access, statfs};
use rustix::io::Errno;
use rustix::process::geteuid;
use tracing::warn;
use zeroize::Zeroizing;

use crate::store::StoreError;

const DIRECTORY_MODE: u32 = 0o700;
/// A key pair is under 2 KiB, a thousand applications under 100 KiB; a ring has up to 3 MiB of
/// revoked tokens, which its quotes lengthen in the journal.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Writers hold the lock for a few file operations; after this time one of them hangs.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);

const NO_DIRECTORY: &str = "a file, not a directory";

#[derive(Debug)]
pub(crate) struct PrivateDirectory(PathBuf);

pub(crate) struct Locked(#[expect(dead_code, reason = "held for its lock")] File);

impl PrivateDirectory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn exists(&self) -> bool {
        self.0.exists()
    }

    /// Creates a missing directory, and rejects one that others may write to: they could replace
    /// our keys.
    pub(crate) fn create(&self) -> Result<(), StoreError> {
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&self.0)
            .map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => unusable(&self.0, NO_DIRECTORY),
                _ => rejected(&self.0, &error),
            })?;
        self.inspect()
    }

    /// Returns the error that [`create`](Self::create) or opening the lock files `locks` would
    /// have, and changes nothing.
    pub(crate) fn preview(&self, locks: &[&str]) -> Result<(), StoreError> {
        for path in self.0.ancestors() {
            let path = if path.as_os_str().is_empty() {
                Path::new(".")
            } else {
                path
            };
            match fs::metadata(path) {
                Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {}
                Err(error) => return Err(rejected(path, &error)),
                Ok(metadata) if !metadata.is_dir() => return Err(unusable(path, NO_DIRECTORY)),
                Ok(_) if path == self.0 => {
                    self.inspect()?;
                    return locks.iter().try_for_each(|name| self.preview_lock(name));
                }
                Ok(_) => return allows_new_entries(path),
            }
        }
        Ok(())
    }

    /// Returns the error that creating a file would have, without creating one.
    pub(crate) fn allows_new_files(&self) -> Result<(), StoreError> {
        allows_new_entries(&self.0)
    }

    fn preview_lock(&self, name: &str) -> Result<(), StoreError> {
        let path = self.0.join(name);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.allows_new_files(),
            Err(error) => Err(rejected(&path, &error)),
            Ok(metadata) if !metadata.is_file() => Err(unusable(&path, "not a regular file")),
            Ok(_) => {
                access(&path, Access::WRITE_OK).map_err(|error| rejected(&path, &error.into()))
            }
        }
    }

    pub(crate) fn inspect(&self) -> Result<(), StoreError> {
        let metadata = fs::metadata(&self.0).map_err(|error| rejected(&self.0, &error))?;
        if metadata.mode() & 0o022 != 0 {
            return Err(unusable(
                &self.0,
                "others may write to this directory; chmod 700 it, or name a subdirectory",
            ));
        }
        // The owner, and root, can remove its content.
        if ![0, geteuid().as_raw()].contains(&metadata.uid()) {
            return Err(unusable(&self.0, "this directory belongs to another user"));
        }
        Ok(())
    }

    /// Reads a file; returns `None` if it does not exist.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Zeroizing<String>>, StoreError> {
        let path = self.0.join(name);
        owner_only_file::read(&path, MAX_FILE_BYTES).map_err(|error| match error {
            PrivateFileError::System(error) => rejected(&path, &error),
            PrivateFileError::NotPrivate(why) => unusable(&path, why),
        })
    }

    /// Replaces a file atomically: after a crash it is the old or the new one.
    pub(crate) fn replace(&self, name: &str, content: &str) -> Result<(), StoreError> {
        let path = self.0.join(name);
        owner_only_file::replace(&path, content).map_err(|error| rejected(&path, &error))
    }

    /// Removes the temporary file of an interrupted [`replace`](Self::replace).
    pub(crate) fn remove_unfinished(&self, name: &str) -> Result<(), StoreError> {
        let path = self.0.join(name);
        owner_only_file::remove_unfinished(&path).map_err(|error| rejected(&path, &error))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.0.join(name);
        match fs::remove_file(&path).and_then(|()| self.sync()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(rejected(&path, &error)),
            _ => Ok(()),
        }
    }

    /// Waits briefly for the lock file `name`.
    pub(crate) fn lock(&self, name: &str) -> Result<Locked, StoreError> {
        let file = self.open_lock(name)?;
        match lock_file::lock(&file, LOCK_TIMEOUT) {
            Ok(()) => Ok(Locked(file)),
            Err(error) if lock_file::is_busy(&error) => Err(StoreError::Unavailable(format!(
                "{} stays locked by another process",
                self.0.join(name).display()
            ))),
            Err(error) => Err(rejected(&self.0.join(name), &error)),
        }
    }

    /// Locks the directory itself for a server, until the result is dropped; waits up to `wait` for
    /// another one to end. Not a file in it: closing a second descriptor of a database drops its
    /// locks.
    pub(crate) fn lock_for_serving(&self, wait: Duration) -> Result<File, StoreError> {
        let directory = File::open(&self.0).map_err(|error| rejected(&self.0, &error))?;
        let mut locked = lock_file::try_lock(&directory);
        if locked.as_ref().is_err_and(lock_file::is_busy) && !wait.is_zero() {
            warn!(
                "another auth-server serves from {}: waiting for its end",
                self.0.display()
            );
            locked = lock_file::lock(&directory, wait);
        }
        match locked {
            Ok(()) => Ok(directory),
            Err(error) if lock_file::is_busy(&error) => Err(StoreError::Unavailable(format!(
                "another auth-server serves from {}; several servers share a redis store",
                self.0.display()
            ))),
            Err(error) => Err(rejected(&self.0, &error)),
        }
    }

    /// Returns true if `held` is still this directory.
    pub(crate) fn is_in_place(&self, held: &File) -> bool {
        lock_file::is_in_place(held, &self.0)
    }

    /// Returns path, owner and mode of a file and the user of this process, for an operator.
    pub(crate) fn describe(&self, name: &str) -> String {
        describe(&self.0.join(name))
    }

    fn open_lock(&self, name: &str) -> Result<File, StoreError> {
        let path = self.0.join(name);
        lock_file::open(&path).map_err(|error| rejected(&path, &error))
    }

    /// Syncs the directory: a rename is durable only with it.
    fn sync(&self) -> std::io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

/// Checks access rights; `/proc` grants root rights that it then denies to every process.
fn allows_new_entries(directory: &Path) -> Result<(), StoreError> {
    let of_directory = |error: Errno| rejected(directory, &error.into());
    access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(of_directory)?;
    if statfs(directory).map_err(of_directory)?.f_type == PROC_SUPER_MAGIC {
        return Err(unusable(directory, "nothing can be created here"));
    }
    Ok(())
}

/// Maps errors: a transient one must not make a good store unusable.
pub(crate) fn rejected(path: &Path, error: &std::io::Error) -> StoreError {
    let line = format!("{}: {error}", describe(path));
    if owner_only_file::is_passing(error) {
        StoreError::Unavailable(line)
    } else {
        StoreError::Unusable(line)
    }
}

pub(crate) fn unusable(path: &Path, why: &str) -> StoreError {
    StoreError::Unusable(format!("{}: {why}", describe(path)))
}
