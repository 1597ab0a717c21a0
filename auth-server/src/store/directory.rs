//! The directory of a store, for its owner only (mode 0700). One that others could have changed is
//! rejected, not repaired: an operator has to check it.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use runtime::files::lock_file;
use runtime::files::owner_only_file::{self, describe};
use rustix::process::geteuid;
use tracing::warn;

use crate::store::StoreError;

const DIRECTORY_MODE: u32 = 0o700;
pub(super) const NO_DIRECTORY: &str = "a file, not a directory";

#[derive(Debug)]
pub(crate) struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
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

    /// Locks the directory itself for a server, until the result is dropped; waits up to `wait` for
    /// another one to end. Not a file in it: closing a second descriptor of a database drops its
    /// locks.
    pub(crate) fn lock_for_serving(&self, wait: Duration) -> Result<File, StoreError> {
        let directory = File::open(&self.0).map_err(|error| rejected(&self.0, &error))?;
        let mut locked = lock_file::try_lock(&directory);
        if locked.as_ref().is_err_and(lock_file::is_busy) {
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
