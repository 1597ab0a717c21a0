//! Secrets in files that are closed to other users.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use zeroize::Zeroizing;

use crate::files::bounded_read::{self, ReadError};
use crate::process::exit::ExitError;

/// Larger than any single secret of ours, so that a wrong path (a disk image, `/dev/zero`) cannot
/// fill the memory.
const MAX_BYTES: u64 = 64 * 1024;

/// Error of an unusable secret file. Every text names the file and none quotes its content.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// It cannot be opened or read.
    #[error("secret file {}: {cause} ({})", path.display(), access)]
    Unreadable {
        /// The file as configured.
        path: PathBuf,
        /// Owner, mode and the user this process runs as.
        access: String,
        /// The cause.
        cause: ReadError,
    },
    /// Others than its owner may read or change it.
    #[error("secret file {} is open to others: {remedy} ({access})", path.display())]
    Exposed {
        /// The file as configured.
        path: PathBuf,
        /// The way to close it and leave it readable for this process.
        remedy: &'static str,
        /// Owner, mode and the user this process runs as.
        access: String,
    },
    /// It is empty.
    #[error("secret file {} is empty ({})", path.display(), access)]
    Empty {
        /// The file as configured.
        path: PathBuf,
        /// Owner, mode and the user this process runs as.
        access: String,
    },
}

impl SecretFileError {
    /// Returns the file as configured.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Unreadable { path, .. }
            | Self::Exposed { path, .. }
            | Self::Empty { path, .. } => path,
        }
    }
}

impl From<SecretFileError> for ExitError {
    fn from(error: SecretFileError) -> Self {
        Self::Config(error.to_string())
    }
}

/// Reads the text of the file without its trailing line break.
///
/// # Errors
/// [`SecretFileError`] when the file is unreadable, open to others, empty, not UTF-8 or too long.
pub fn read(path: &Path) -> Result<Zeroizing<String>, SecretFileError> {
    read_up_to(path, MAX_BYTES)
}

/// Reads a file of many secrets, of at most `max_bytes`.
///
/// # Errors
/// Those of [`read`].
pub fn read_up_to(path: &Path, max_bytes: u64) -> Result<Zeroizing<String>, SecretFileError> {
    let unreadable = |access: String, cause| SecretFileError::Unreadable {
        path: path.to_owned(),
        access,
        cause,
    };
    let content =
        bounded_read::read(path, max_bytes).map_err(|cause| unreadable(access_of(path), cause))?;
    // Metadata of the open file, not of the path, which could be exchanged in between.
    let access = describe(&content.metadata);
    if is_exposed(content.metadata.mode(), content.metadata.uid()) {
        let path = path.to_owned();
        let remedy = remedy(content.metadata.uid(), geteuid().as_raw());
        return Err(SecretFileError::Exposed {
            path,
            remedy,
            access,
        });
    }
    let text = match content.into_text() {
        Ok(text) => text,
        Err(cause) => return Err(unreadable(access, cause)),
    };
    let trimmed = Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned());
    if trimmed.is_empty() {
        let path = path.to_owned();
        return Err(SecretFileError::Empty { path, access });
    }
    Ok(trimmed)
}

/// Returns true unless the owner alone has access. The group may also read a file of root's:
/// Kubernetes mounts a secret so for a pod with `fsGroup` (root:GROUP 0440).
fn is_exposed(mode: u32, owner: u32) -> bool {
    let closed_to_others = if owner == 0 { 0o037 } else { 0o077 };
    mode & closed_to_others != 0
}

/// Returns what closes a file of `owner` to others, but not to `user`: the mode alone could take it away.
const fn remedy(owner: u32, user: u32) -> &'static str {
    match owner {
        _ if owner == user => "allow its owner only, chmod 600",
        0 => {
            "root owns it: chmod 440 with a group of this user (Kubernetes: fsGroup and defaultMode 0440), or \
             give it to this user with mode 0400 (Compose: uid and mode of the secret)"
        }
        _ => {
            "another user owns it: chown it to this user, then chmod 600 (Compose: uid and mode of the secret)"
        }
    }
}

fn access_of(path: &Path) -> String {
    fs::metadata(path).map_or_else(|_| running_as(), |metadata| describe(&metadata))
}

fn describe(metadata: &Metadata) -> String {
    format!(
        "owner uid {}, mode {:04o}, {}",
        metadata.uid(),
        metadata.mode() & 0o7777,
        running_as()
    )
}

fn running_as() -> String {
    format!("running as uid {}", geteuid().as_raw())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file_with(content: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn the_trailing_line_break_is_not_part_of_the_secret() {
        for content in ["s3cret", "s3cret\n", "s3cret\r\n"] {
            let file = file_with(content.as_bytes(), 0o600);
            assert_eq!(read(file.path()).unwrap().as_str(), "s3cret");
        }
    }

    #[test]
    fn only_the_owner_may_have_access_or_roots_group_may_read() {
        let table = [
            (0o600, 1000, false),
            (0o400, 1000, false),
            (0o640, 1000, true),
            (0o604, 1000, true),
            (0o440, 0, false),
            (0o640, 0, false),
            (0o660, 0, true),
            (0o444, 0, true),
        ];
        for (mode, owner, exposed) in table {
            assert_eq!(is_exposed(mode, owner), exposed, "{mode:o} of uid {owner}");
        }
    }

    #[test]
    fn what_is_advised_leaves_the_file_readable() {
        for (owner, user, advice) in [
            (7, 7, "chmod 600"),
            (0, 0, "chmod 600"),
            (0, 7, "fsGroup and defaultMode 0440"),
            (8, 7, "chown"),
        ] {
            assert!(remedy(owner, user).contains(advice), "{owner} {user}");
        }
    }

    #[test]
    fn a_world_readable_file_is_rejected_with_owner_and_mode() {
        let file = file_with(b"s3cret", 0o644);
        let line = read(file.path()).unwrap_err().to_string();
        let uid = geteuid().as_raw();
        assert!(line.contains(&file.path().display().to_string()), "{line}");
        assert!(
            line.contains(&format!("owner uid {uid}, mode 0644, running as uid {uid}")),
            "{line}"
        );
        assert!(!line.contains("s3cret"), "{line}");
    }

    #[test]
    fn a_missing_file_is_named_with_the_cause() {
        let line = read(Path::new("/nowhere/app-secret"))
            .unwrap_err()
            .to_string();
        assert!(
            line.starts_with("secret file /nowhere/app-secret: "),
            "{line}"
        );
        assert!(line.contains("No such file"), "{line}");
    }

    #[test]
    fn an_empty_too_long_or_binary_file_is_no_secret() {
        let too_long = vec![b'a'; MAX_BYTES as usize + 1];
        for (content, why) in [
            (&b"\n"[..], "is empty"),
            (&too_long, "is longer than 64 KiB"),
            (b"\xff\xfe", "UTF-8"),
        ] {
            let line = read(file_with(content, 0o600).path())
                .unwrap_err()
                .to_string();
            assert!(line.contains(why), "{line}");
        }
    }
}
