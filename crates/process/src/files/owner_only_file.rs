//! A small file of our own, closed to other users: 0600, replaced whole, never half written.
//!
//! A file that other users could have read or changed is rejected, not repaired: the operator has to
//! check it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use crate::files::bounded_read::{self, ReadError};
use crate::files::replaced_file::REMEDY;
use crate::files::{lock_file, with_suffix};

const FILE_MODE: u32 = 0o600;

/// Reads the text of the file at `path`, of at most `max_bytes`; `None` if it is missing.
///
/// # Errors
/// [`ReadError`] unless it is a regular file of ours alone, with a text that is not too long.
pub fn read(path: &Path, max_bytes: u64) -> Result<Option<Zeroizing<String>>, ReadError> {
    // A link may lead to a directory that others can write to.
    let content = match bounded_read::read_with(OFlags::NOFOLLOW, path, max_bytes) {
        Err(ReadError::System(error)) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(ReadError::System(error)) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            return Err(ReadError::NoFile);
        }
        read => read?,
    };
    // The mode is the open file's, so that the file cannot be exchanged between check and use.
    if content.metadata.mode() & 0o077 != 0 {
        return Err(ReadError::NotPrivate(
            "others may read or write this file; chmod 600 it",
        ));
    }
    if content.metadata.uid() != geteuid().as_raw() {
        return Err(ReadError::NotPrivate("this file belongs to another user"));
    }
    content.into_text().map(Some)
}

/// Replaces the file at `path` as a whole: after a crash the old or the new file is there.
///
/// # Errors
/// Those of [`replace_prepared`].
pub fn replace(path: &Path, content: &str) -> io::Result<()> {
    replace_prepared(path, content, |_| Ok(()))
}

/// Replaces a file as [`replace`] does, after a call of `prepare` on the new file: for another
/// owner or mode.
///
/// The content is first written to `<path>.new`, where [`remove_unfinished`] finds the rest after a crash.
///
/// # Errors
/// The errors of the operating system, and [`ErrorKind::ResourceBusy`] while another process replaces
/// the same file. The old file stays.
pub fn replace_prepared(
    path: &Path,
    content: &str,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut new = UnfinishedFile::create(unfinished(path))?;
    new.file.write_all(content.as_bytes())?;
    prepare(&new.file)?;
    new.rename(path)
}

/// A file under a name beside its later name, which no other process writes meanwhile. Unless it is
/// renamed, its drop removes it; the next file of the same name replaces the rest after a crash.
#[derive(Debug)]
pub struct UnfinishedFile {
    file: File,
    /// The name of the file until it is renamed.
    pub path: PathBuf,
}

impl UnfinishedFile {
    /// Creates the file, empty.
    ///
    /// # Errors
    /// The errors of the operating system, [`ErrorKind::ResourceBusy`] while another process writes the file.
    pub fn create(path: PathBuf) -> io::Result<Self> {
        let file = claim(&path)?;
        Ok(Self { file, path })
    }

    /// Renames the file to `name`: after a crash the old file or the whole new file has that name.
    ///
    /// # Errors
    /// The errors of the operating system; the old file stays.
    pub fn rename(self, name: &Path) -> io::Result<()> {
        // Sync the content before the rename: after a crash the name must not lead to half of the content.
        self.file.sync_all()?;
        fs::rename(&self.path, name).map_err(renamed_over)?;
        // A rename is durable only with its directory.
        File::open(directory_of(name))?.sync_all()
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // The former name may lead to another process's file by now.
        if lock_file::try_lock_in_place(&self.file, &self.path).is_ok() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Marks the file at `path`, whose content is out of date and could not be replaced, by taking away the
/// permission to write it: this mark needs no room on the disk.
///
/// # Errors
/// The errors of the operating system.
pub fn mark_outdated(path: &Path) -> io::Result<()> {
    open(path)?.set_permissions(fs::Permissions::from_mode(FILE_MODE & 0o400))
}

/// Returns true for a file that [`mark_outdated`] marked, until it is replaced.
#[must_use]
pub fn is_outdated(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.mode() & 0o200 == 0)
}

/// Names the remedy for a mount of the file alone, over which nothing can be renamed.
fn renamed_over(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::BUSY) => io::Error::other(format!(
            "it is mounted alone, so it cannot change: {REMEDY}"
        )),
        _ => error,
    }
}

/// Removes the remains of a [`replace`] of `path` after a crash. A file that another process is
/// writing stays.
///
/// # Errors
/// The errors of the operating system.
pub fn remove_unfinished(path: &Path) -> io::Result<()> {
    match remove_abandoned(&unfinished(path)) {
        Err(error) if lock_file::is_busy(&error) => Ok(()),
        removed => removed,
    }
}

/// Returns true for an error that passes by itself or with more room on the disk.
#[must_use]
pub fn is_passing(error: &io::Error) -> bool {
    const PASSING: [Errno; 6] = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::IO,
        Errno::NOMEM,
    ];
    lock_file::is_busy(error)
        || Errno::from_io_error(error).is_some_and(|errno| PASSING.contains(&errno))
}

fn unfinished(path: &Path) -> PathBuf {
    with_suffix(path, ".new")
}

/// Creates `new`, 0600 from its first byte on, and locks it: only the holder of the lock writes.
fn claim(new: &Path) -> io::Result<File> {
    remove_abandoned(new)?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(new)?;
    lock_file::try_lock_in_place(&file, new)?;
    Ok(file)
}

/// Removes `new` unless a living process holds its lock.
fn remove_abandoned(new: &Path) -> io::Result<()> {
    remove_opened(new, open(new))
}

/// Removes `new`, given the result of opening it. A link or a pipe was not made by [`claim`], but a
/// regular file that this user cannot open may be locked by another user's process.
fn remove_opened(new: &Path, opened: io::Result<File>) -> io::Result<()> {
    // The lock is held until the file is gone, so that no process begins to write it in between.
    let _locked = match opened {
        Ok(file) => {
            lock_file::try_lock_in_place(&file, new)?;
            Some(file)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) if is_regular(new) => return Err(error),
        Err(_) => None,
    };
    match fs::remove_file(new) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn is_regular(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// Returns path, owner and mode of a file, and our own user, for the operator.
#[must_use]
pub fn describe(path: &Path) -> String {
    let us = geteuid().as_raw();
    match fs::symlink_metadata(path) {
        Ok(metadata) => format!(
            "{} (owner uid {}, mode {:04o}, we are uid {us})",
            path.display(),
            metadata.uid(),
            metadata.mode() & 0o7777
        ),
        Err(_) => format!("{} (we are uid {us})", path.display()),
    }
}

/// Opens no link, which may lead to a directory that others can write to, and does not wait for the
/// other end of a pipe.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_for_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys");
        assert!(read(&path, 10).unwrap().is_none());
        assert_eq!(directory_of(&path), home.path());
        for content in ["one", "another"] {
            replace(&path, content).unwrap();
            assert_eq!(read(&path, 10).unwrap().unwrap().as_str(), content);
            assert!(!is_outdated(&path));
            mark_outdated(&path).unwrap();
            assert!(is_outdated(&path));
            replace(&path, content).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_changes_nothing() {
        let home = tempfile::tempdir().unwrap();
        assert!(replace(&home.path().join("nowhere/keys"), "one").is_err());
        let directory = home.path().join("directory");
        fs::create_dir(&directory).unwrap();
        assert!(replace(&directory, "one").is_err());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_crash_left_is_replaced_or_removed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys");
        let left = home.path().join("keys.new");
        let leave = |mode| {
            fs::write(&left, "half of a much longer ke").unwrap();
            fs::set_permissions(&left, Permissions::from_mode(mode)).unwrap();
        };
        for mode in [0o600, 0o640] {
            leave(mode);
            replace(&path, "one").unwrap();
            assert_eq!(read(&path, 10).unwrap().unwrap().as_str(), "one");
            leave(mode);
            remove_unfinished(&path).unwrap();
            assert!(!left.exists(), "{mode:o}");
        }
        symlink(&path, &left).unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(read(&path, 10).unwrap().unwrap().as_str(), "two");
        remove_unfinished(&path).unwrap();
    }

    #[test]
    fn a_left_over_file_that_this_user_cannot_open_stays() {
        let home = tempfile::tempdir().unwrap();
        let new = home.path().join("keys.new");
        let removed = || remove_opened(&new, Err(Errno::ACCESS.into()));
        fs::write(&new, "half of a ke").unwrap();
        let error = removed().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(new.exists());
        fs::remove_file(&new).unwrap();
        symlink(home.path().join("elsewhere"), &new).unwrap();
        removed().unwrap();
        assert!(fs::symlink_metadata(&new).is_err());
    }

    #[test]
    fn a_file_that_another_process_replaces_is_left_to_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys");
        let other = claim(&unfinished(&path)).unwrap();
        let busy = replace(&path, "one").unwrap_err();
        assert!(lock_file::is_busy(&busy));
        assert!(is_passing(&busy));
        remove_unfinished(&path).unwrap();
        assert!(home.path().join("keys.new").exists());
        drop(other);
        replace(&path, "one").unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_full_disk_passes_and_a_missing_right_does_not() {
        for (errno, passes) in [
            (Errno::NOSPC, true),
            (Errno::DQUOT, true),
            (Errno::MFILE, true),
            (Errno::IO, true),
            (Errno::ACCESS, false),
        ] {
            assert_eq!(is_passing(&errno.into()), passes, "{errno}");
        }
    }

    #[test]
    fn what_others_could_have_made_is_rejected() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys");
        let error = || read(&path, 10).unwrap_err().to_string();
        fs::write(&path, "one").unwrap();
        for mode in [0o644, 0o640, 0o620, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(error().contains("chmod 600"), "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(read(&path, 10).unwrap().is_some());
        fs::rename(&path, home.path().join("elsewhere")).unwrap();
        symlink(home.path().join("elsewhere"), &path).unwrap();
        assert_eq!(error(), "is not a regular file");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(error(), "is not a regular file");
    }
}
