//! Files that are looked at again and again: their contents are read only when something about them
//! changed.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use tokio::task::spawn_blocking;

/// What changes with a file: also where a link on the way to it leads elsewhere, as Kubernetes does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Moves with the mode too: a file that was closed to us may be open now.
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// The files, and how they were when they were read.
#[derive(Debug, Clone)]
pub(crate) struct WatchedFiles {
    files: Vec<PathBuf>,
    read: Vec<Option<Stamp>>,
    /// At the last look.
    seen: Vec<Option<Stamp>>,
}

impl WatchedFiles {
    /// Waits for files that hang.
    pub(super) fn of(files: Vec<PathBuf>) -> Self {
        let stamps = stamps_of(&files);
        Self {
            files,
            read: stamps.clone(),
            seen: stamps,
        }
    }

    /// Whether they are not as they were read, and as they were at the last look: a file that is just
    /// being written, or two that are replaced one after the other, are left to settle.
    pub(super) async fn have_changed(&mut self) -> bool {
        let now = stamps(&self.files).await;
        let has_settled = now == self.seen;
        self.seen = now;
        has_settled && self.seen != self.read
    }

    /// They are about to be read.
    pub(super) async fn take_note(&mut self) {
        self.read = stamps(&self.files).await;
        self.seen.clone_from(&self.read);
    }

    /// Others may have to be looked at after that; what is known of the same ones stays known.
    pub(super) async fn also(&mut self, files: Vec<PathBuf>) {
        if files != self.files {
            self.files = files;
            self.take_note().await;
        }
    }
}

async fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let files = files.to_vec();
    let looked = spawn_blocking(move || stamps_of(&files));
    looked.await.unwrap_or_default()
}

fn stamps_of(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |file| Some(Stamp::of(&fs::metadata(file).ok()?));
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
            let looks = [watched.have_changed().await, watched.have_changed().await];
            watched.take_note().await;
            assert!(!watched.have_changed().await);
            looks
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
    async fn a_file_that_goes_on_changing_is_left_to_settle() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        let mut watched = WatchedFiles::of(vec![file.clone()]);
        for length in 1..5 {
            write(&file, "a".repeat(length)).unwrap();
            assert!(!watched.have_changed().await);
        }
        assert!(watched.have_changed().await);
    }
}
