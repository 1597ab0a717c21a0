//! Files that were replaced under a mount of the file alone, as `docker run -v FILE:FILE` and
//! `subPath` make it: the mount leads to the old file forever, and no read shows the new content.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

/// The remedy for a file that a mount replaced.
pub const REMEDY: &str = "mount its directory instead";

/// The files of this process that were replaced under their mount at their last read.
static REPLACED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

crate::metrics! {
    /// The number of files replaced under their mount.
    pub struct ReplacedFiles {
        /// Files that were replaced under a mount of the file alone: their new content never arrives
        files_replaced_under_mount: Gauge,
    }
}

/// The number of replaced files of this process.
pub static REPLACED_FILES: LazyLock<ReplacedFiles> = LazyLock::new(ReplacedFiles::default);

/// Returns true if the file, opened with this metadata, was replaced under its mount, and remembers it.
pub(super) fn note(path: &Path, opened: &Metadata) -> bool {
    let has_no_link = |metadata: &Metadata| metadata.is_file() && metadata.nlink() == 0;
    // A plain rename in between leads to another file now, and `/dev/fd/3` may lead to a deleted
    // file, but has no real path.
    let path_has_no_link = || {
        let now = fs::canonicalize(path).and_then(fs::metadata);
        now.is_ok_and(|now| has_no_link(&now))
    };
    let is_replaced = has_no_link(opened) && path_has_no_link();
    remember(path, is_replaced);
    is_replaced
}

/// Forgets a file that is not used any more. One that cannot be opened is not forgotten: its old content is in use.
pub fn forget(path: &Path) {
    remember(path, false);
}

fn remember(path: &Path, is_replaced: bool) {
    let mut replaced = REPLACED.lock();
    if is_replaced {
        replaced.insert(path.to_owned());
    } else {
        replaced.remove(path);
    }
    let files = i64::try_from(replaced.len()).unwrap_or(i64::MAX);
    REPLACED_FILES.files_replaced_under_mount.set(files);
}

/// Returns true if this file was replaced under its mount at its last read.
#[must_use]
pub fn is_replaced(path: &Path) -> bool {
    REPLACED.lock().contains(path)
}

/// Returns the note of `/readyz`, if there are such files.
pub fn readiness_note() -> Option<String> {
    let mut names = Vec::new();
    for file in REPLACED.lock().iter() {
        names.push(file.display().to_string());
    }
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "{}: replaced or removed under a mount; {REMEDY}",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::bounded_read;

    #[test]
    fn a_file_counts_as_replaced_until_it_is_not_used_any_more() {
        let path = Path::new("/nowhere/replaced");
        remember(path, true);
        assert!(bounded_read::read(path, 8).is_err());
        assert!(is_replaced(path));
        forget(path);
        assert!(!is_replaced(path));
    }
}
