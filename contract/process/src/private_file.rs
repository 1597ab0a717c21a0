//! A small file of our own that nobody else may touch: 0600, replaced whole, never half written.
//!
//! What others could have read or changed is refused, not repaired: somebody has to look at it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

/// Why a file cannot be used. The text does not name it: [`describe`] does.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// What the operating system said.
    #[error(transparent)]
    System(#[from] io::Error),
    /// It is not ours alone.
    #[error("{0}")]
    NotPrivate(&'static str),
}

/// The text of the file at `path`, of at most `max_bytes`; `None` where there is none.
///
/// # Errors
/// [`PrivateFileError`] for what is no regular file of ours alone, or no text, or too much of it.
pub fn read(path: &Path, max_bytes: u64) -> Result<Option<Zeroizing<String>>, PrivateFileError> {
    let file = match open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            return Err(PrivateFileError::NotPrivate("not a regular file"));
        }
        opened => opened?,
    };
    // Asked of the open file, so that it cannot be exchanged between check and use.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(PrivateFileError::NotPrivate("not a regular file"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(PrivateFileError::NotPrivate(
            "others may read or write this file; chmod 600 it",
        ));
    }
    if metadata.uid() != geteuid().as_raw() {
        return Err(PrivateFileError::NotPrivate(
            "this file belongs to somebody else",
        ));
    }
    read_text(file, max_bytes).map(Some).map_err(Into::into)
}

/// Puts a whole file in place of whatever is at `path`: after a crash it is the old or the new one.
///
/// # Errors
/// What the operating system said. What was there stays.
pub fn replace(path: &Path, content: &str) -> io::Result<()> {
    let directory = directory_of(path);
    // 0600 from its first byte on: the mode `tempfile` creates with.
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(content.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // A rename is durable only with its directory.
    File::open(directory)?.sync_all()
}

/// Path, owner and mode of a file, and who asks: what an operator needs to see.
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

/// A link may lead to a file whose directory others can write to, and opening a pipe waits for its
/// other end.
fn open(path: &Path) -> io::Result<File> {
    let careful = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new()
        .read(true)
        .custom_flags(careful.bits().cast_signed())
        .open(path)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

fn read_text(file: File, max_bytes: u64) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    let read = file.take(max_bytes + 1).read_to_string(&mut text)?;
    if read as u64 > max_bytes {
        return Err(io::Error::other("larger than any file of ours"));
    }
    Ok(text)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_for_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys");
        assert!(read(&path, 10).unwrap().is_none());
        for content in ["one", "another"] {
            replace(&path, content).unwrap();
            assert_eq!(read(&path, 10).unwrap().unwrap().as_str(), content);
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
    fn what_others_could_have_made_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys");
        let refusal = || read(&path, 10).unwrap_err().to_string();
        fs::write(&path, "one").unwrap();
        for mode in [0o644, 0o640, 0o620, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(refusal().contains("chmod 600"), "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(read(&path, 10).unwrap().is_some());
        fs::write(&path, "eleven byte").unwrap();
        assert!(refusal().contains("larger"));
        fs::write(&path, b"\xff").unwrap();
        assert!(refusal().contains("UTF-8"));
        fs::rename(&path, home.path().join("elsewhere")).unwrap();
        symlink(home.path().join("elsewhere"), &path).unwrap();
        assert_eq!(refusal(), "not a regular file");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(refusal(), "not a regular file");
    }
}
