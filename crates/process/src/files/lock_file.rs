//! Locks between processes: files that are locked, and whose content means nothing.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

const FILE_MODE: u32 = 0o600;
const RETRY: Duration = Duration::from_millis(10);

/// Opens the lock file at `path`, and creates it for its owner alone if it is missing: other users
/// cannot open it and so cannot lock it.
///
/// # Errors
/// The errors of the operating system, and [`ErrorKind::InvalidInput`] unless it is a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // A link leads elsewhere, or would create a file there; opening a pipe waits for its other end.
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(FILE_MODE)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

/// Locks `file` until it is dropped, and waits for other holders of the lock, `timeout` at most.
///
/// # Errors
/// [`ErrorKind::ResourceBusy`] while another process holds the lock.
pub fn lock(file: &File, timeout: Duration) -> io::Result<()> {
    let started = Instant::now();
    loop {
        match try_lock(file) {
            Err(error) if is_busy(&error) && started.elapsed() < timeout => {
                std::thread::sleep(RETRY);
            }
            outcome => return outcome,
        }
    }
}

/// Locks `file` until it is dropped.
///
/// # Errors
/// [`ErrorKind::ResourceBusy`] while another process holds the lock.
pub fn try_lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(busy()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks a file that other processes may remove or replace, until it is dropped: it still has to be the
/// file at `path`.
///
/// # Errors
/// Those of [`try_lock`], also for a file that is no longer at `path`.
pub fn try_lock_in_place(file: &File, path: &Path) -> io::Result<()> {
    // Lock before the comparison: until then another process may replace the file.
    try_lock(file)?;
    if is_in_place(file, path) {
        Ok(())
    } else {
        Err(busy())
    }
}

/// Returns true if `file` is the one that other processes would open under `path`.
#[must_use]
fn is_in_place(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let in_place = fs::symlink_metadata(path).map(identity).ok();
    in_place.is_some() && in_place == file.metadata().map(identity).ok()
}

/// Returns true if another process holds the lock.
#[must_use]
pub fn is_busy(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ResourceBusy
}

fn busy() -> io::Error {
    io::Error::new(ErrorKind::ResourceBusy, "locked by another process")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_for_its_owner_alone_and_for_one_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lock");
        let (one, other) = (open(&path).unwrap(), open(&path).unwrap());
        assert_eq!(one.metadata().unwrap().mode() & 0o7777, 0o600);
        try_lock(&one).unwrap();
        let timeout = Duration::from_millis(30);
        assert!(is_busy(&lock(&other, timeout).unwrap_err()));
        drop(one);
        lock(&other, timeout).unwrap();
    }

    #[test]
    fn a_file_that_was_removed_or_replaced_is_no_lock() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lock");
        let file = open(&path).unwrap();
        try_lock_in_place(&file, &path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(is_busy(&try_lock_in_place(&file, &path).unwrap_err()));
        let _another = open(&path).unwrap();
        assert!(!is_in_place(&file, &path));
    }

    #[test]
    fn a_link_or_a_pipe_is_no_lock() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lock");
        std::os::unix::fs::symlink(home.path().join("created"), &path).unwrap();
        assert!(open(&path).is_err());
        assert!(!home.path().join("created").exists());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(open(&path).is_err());
    }
}
