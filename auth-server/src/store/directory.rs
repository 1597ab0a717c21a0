//! The directory of a store, for its owner only (mode 0700). Files and directories of this user are closed to
//! others, with a warning: Kubernetes opens a volume to the `fsGroup` of a pod at each mount.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use postern_process::files::lock_file;
use postern_process::files::owner_only_file::{self, describe};
use rustix::fs::{Access as FileAccess, access};
use rustix::process::geteuid;
use tracing::warn;

use crate::store::StoreError;

/// The target of these log lines, which commands write as well.
const TARGET: &str = "store";
const DIRECTORY_MODE: u32 = 0o700;
pub(super) const NO_DIRECTORY: &str = "a file, not a directory";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The access of a server, which has no other server beside it.
    Serve,
    /// The access of a command, beside a server.
    Write,
    /// The access of a preview, which leaves the files as they are and needs no right to write.
    Preview,
}

/// Creates a missing directory, and inspects it.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)
        .map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => unusable(path, NO_DIRECTORY),
            _ => rejected(path, &error),
        })?;
    inspect(path, Access::Write)
}

/// Checks that this user could write to it, or make it, without doing so.
pub(super) fn check_access(path: &Path) -> Result<(), StoreError> {
    let whole = std::path::absolute(path).map_err(|error| rejected(path, &error))?;
    let existing = whole.ancestors().find(|it| it.exists()).unwrap_or(&whole);
    if !existing.is_dir() {
        return Err(unusable(existing, NO_DIRECTORY));
    }
    access(existing, FileAccess::WRITE_OK | FileAccess::EXEC_OK)
        .map_err(|error| rejected(existing, &error.into()))?;
    if existing == whole {
        inspect(path, Access::Preview)?;
    }
    Ok(())
}

/// Checks that others may not write to it: they could replace our keys.
pub(super) fn inspect(path: &Path, access: Access) -> Result<(), StoreError> {
    let metadata = fs::metadata(path).map_err(|error| rejected(path, &error))?;
    let owner = metadata.uid();
    let is_open = metadata.mode() & 0o022 != 0;
    let is_ours = owner == geteuid().as_raw();
    // Another owner could remove the content of the directory, and root could anyway.
    if !is_ours && owner != 0 {
        return Err(unusable(path, OF_ANOTHER));
    }
    match (is_open, is_ours) {
        (false, _) => Ok(()),
        (true, true) => close(path, DIRECTORY_MODE, access),
        (true, false) => Err(unusable(
            path,
            "others may write to this directory of root's; name a subdirectory, which this program makes \
             for itself",
        )),
    }
}

/// Locks the directory for a server, until the result is dropped; waits up to `wait` for another server to
/// end. The directory is locked, not a file in it: closing a second descriptor of a database drops its locks.
pub(super) fn lock_for_serving(path: &Path, wait: Duration) -> Result<File, StoreError> {
    let directory = File::open(path).map_err(|error| rejected(path, &error))?;
    let mut locked = lock_file::try_lock(&directory);
    if locked.as_ref().is_err_and(lock_file::is_busy) {
        // Try without a wait first, so that the operator learns what the server waits for.
        warn!(
            target: TARGET,
            "another auth-server serves from {}: waiting up to {} s for its end",
            path.display(),
            wait.as_secs()
        );
        locked = lock_file::lock(&directory, wait);
    }
    match locked {
        Ok(()) => Ok(directory),
        Err(error) if lock_file::is_busy(&error) => Err(StoreError::Unavailable(format!(
            "another auth-server serves from {}; several servers share a redis store",
            path.display()
        ))),
        Err(error) => Err(rejected(path, &error)),
    }
}

/// The cause of the error for a file that this user cannot close to others.
pub(super) const OF_ANOTHER: &str =
    "belongs to another user: run as that one, or chown it to this one";

/// Takes away the rights of others to a file or directory of this user.
pub(super) fn close(path: &Path, mode: u32, access: Access) -> Result<(), StoreError> {
    if access == Access::Preview {
        return Ok(());
    }
    let former = describe(path);
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(|error| rejected(path, &error))?;
    warn!(
        target: TARGET,
        "{former}: others had access, as on a volume with fsGroup; the mode is {mode:04o} now"
    );
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
