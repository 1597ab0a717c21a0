//! Secrets in files that are closed to other users.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;
use zeroize::Zeroizing;

use crate::exit::ExitError;
use crate::files::bounded_read::{self, LINE_END};

/// Larger than any single secret of ours, so that a wrong path (a disk image, `/dev/zero`) cannot
/// fill the memory.
const MAX_BYTES: u64 = 64 * 1024;

/// Error of an unusable secret file: its name, the cause, owner, mode and the user that this process
/// runs as, never its content.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SecretFileError(String);

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
    let unusable = |metadata: Option<&Metadata>, problem: String| {
        let (path, access) = (path.display(), access(metadata));
        SecretFileError(format!("secret file {path}{problem} ({access})"))
    };
    let content = bounded_read::read(path, max_bytes)
        .map_err(|cause| unusable(fs::metadata(path).ok().as_ref(), format!(": {cause}")))?;
    // Metadata of the open file: the path could lead to another file by now.
    let metadata = content.metadata.clone();
    if is_exposed(metadata.mode(), metadata.uid()) {
        return Err(unusable(
            Some(&metadata),
            format!(
                " is open to others: {}",
                remedy(metadata.uid(), geteuid().as_raw())
            ),
        ));
    }
    let text = content
        .into_text()
        .map_err(|cause| unusable(Some(&metadata), format!(": {cause}")))?;
    // Editors and `echo` add a line end, which is no part of the secret.
    let trimmed = Zeroizing::new(text.trim_end_matches(LINE_END).to_owned());
    if trimmed.is_empty() {
        return Err(unusable(Some(&metadata), " is empty".to_owned()));
    }
    Ok(trimmed)
}

/// Returns true unless the owner alone has access. The group may also read a file of root's:
/// Kubernetes mounts a secret so for a pod with `fsGroup` (root:GROUP 0440).
fn is_exposed(mode: u32, owner: u32) -> bool {
    // The group may read a file of root's, but no other user may, and only root may write it.
    let closed_to_others = if owner == 0 { 0o037 } else { 0o077 };
    mode & closed_to_others != 0
}

/// Returns the remedy that closes a file of `owner` to other users, but not to `user`: a change of the mode
/// alone could take the file from `user`.
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

fn access(metadata: Option<&Metadata>) -> String {
    let user = format!("running as uid {}", geteuid().as_raw());
    match metadata {
        Some(file) => format!(
            "owner uid {}, mode {:04o}, {user}",
            file.uid(),
            file.mode() & 0o7777
        ),
        None => user,
    }
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
        let nothing = read(file_with(b"\n", 0o600).path()).unwrap_err();
        assert!(nothing.to_string().contains("is empty"), "{nothing}");
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
}
