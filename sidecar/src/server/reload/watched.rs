//! Polled files: their contents are read only after a change of their metadata.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use tokio::task::spawn_blocking;

/// The metadata that changes with a file: also when a link on the way to it changes, as in
/// Kubernetes, and with the mode: an unreadable file may be readable now.
type Stamp = ([u64; 3], [i64; 4]);

/// The files, with their metadata at the last read.
#[derive(Debug, Clone)]
pub(crate) struct WatchedFiles {
    files: Vec<PathBuf>,
    read: Vec<Option<Stamp>>,
    /// State of the files at the last poll.
    seen: Vec<Option<Stamp>>,
}

impl WatchedFiles {
    /// Reads the metadata; waits for files that hang.
    pub(super) fn of(files: Vec<PathBuf>) -> Self {
        let stamps = stamps_of(&files);
        Self {
            files,
            read: stamps.clone(),
            seen: stamps,
        }
    }

    /// Returns true when they differ from the last read and equal the last poll: a file that is
    /// being written, or two that are replaced one after the other, settle first.
    pub(super) async fn poll_changed(&mut self) -> bool {
        let now = stamps(&self.files).await;
        let has_settled = now == self.seen;
        self.seen = now;
        has_settled && self.seen != self.read
    }

    /// Marks the files as read.
    pub(super) async fn mark_read(&mut self) {
        self.read = stamps(&self.files).await;
        self.seen.clone_from(&self.read);
    }

    /// Replaces the files; the state of those that stay is kept.
    pub(super) async fn set_files(&mut self, files: Vec<PathBuf>) {
        if files != self.files {
            self.files = files;
            self.mark_read().await;
        }
    }
}

async fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let files = files.to_vec();
    let stamps = spawn_blocking(move || stamps_of(&files));
    stamps.await.unwrap_or_default()
}

fn stamps_of(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |file| {
        let it = fs::metadata(file).ok()?;
        let times = [it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()];
        Some(([it.dev(), it.ino(), it.size()], times))
    };
    files.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs::{remove_file, rename, write};
    use std::os::unix::fs::symlink;

    use super::*;

    #[tokio::test]
    async fn a_change_is_seen_once_and_when_it_has_settled() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        let mut watched = WatchedFiles::of(vec![file.clone()]);
        let mut seen_once = async || {
            let polls = [watched.poll_changed().await, watched.poll_changed().await];
            watched.mark_read().await;
            assert!(!watched.poll_changed().await);
            polls
        };
        assert_eq!(seen_once().await, [false, false], "it is not there");
        write(&file, "a").unwrap();
        assert_eq!(seen_once().await, [false, true], "it is there");
        write(&file, "ab").unwrap();
        assert_eq!(seen_once().await, [false, true], "it is longer");
        let other = home.path().join("other");
        write(&other, "ba").unwrap();
        rename(&other, &file).unwrap();
        assert_eq!(seen_once().await, [false, true], "it is another one");
        remove_file(&file).unwrap();
        assert_eq!(seen_once().await, [false, true], "it is gone");
        write(&other, "ba").unwrap();
        symlink(&other, &file).unwrap();
        assert_eq!(seen_once().await, [false, true], "it is a link");
        assert_eq!(seen_once().await, [false, false]);
    }

    #[tokio::test]
    async fn a_file_that_keeps_changing_is_left_to_settle() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        let mut watched = WatchedFiles::of(vec![file.clone()]);
        for length in 1..5 {
            write(&file, "a".repeat(length)).unwrap();
            assert!(!watched.poll_changed().await);
        }
        assert!(watched.poll_changed().await);
    }
}
