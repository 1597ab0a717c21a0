//! A file system of a few kilobytes that a single program sees: a disk that a test can fill without
//! harm.
//!
//! It is mounted in the program's own mount namespace and ends with the program. From outside, its
//! files are below `/proc/PID/root`.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::actors::process::{CommandLine, Process};
use crate::skip::skip;

/// A database and its log, each of some pages.
const SIZE: &str = "size=512k,mode=700";
const MOUNT: &str = r#"mount -t tmpfs -o "$1" none "$0" && shift && exec "$@""#;
const FILLER: &str = "filler";

/// The mount point of the disk.
#[derive(Debug)]
pub struct SmallDisk {
    mount_point: TempDir,
}

impl SmallDisk {
    /// Creates the mount point; returns `None`, with a SKIP line, where no file system can be
    /// mounted.
    ///
    /// # Panics
    /// In CI where no file system can be mounted, or without a temporary directory.
    pub fn new() -> Option<Self> {
        let disk = Self {
            mount_point: tempfile::tempdir().expect("a directory"),
        };
        can_mount("a full disk", &disk.wrapper()).then_some(disk)
    }

    /// Mounts the disk while the returned process lives; other programs reach it at
    /// [`seen_by`](Self::seen_by) that process.
    pub fn mounted(&self) -> Process {
        let mut holder = started_by(&self.wrapper())
            .arguments(["sh", "-c", "echo mounted && exec sleep 600"])
            .start();
        holder.announced("mounted");
        holder
    }

    /// Returns the command that runs a program with the disk; the program follows it.
    pub fn wrapper(&self) -> Vec<String> {
        own_mounts(MOUNT, &[&self.path().display().to_string(), SIZE])
    }

    /// Returns the mount point, an empty directory for all other programs.
    pub fn path(&self) -> &Path {
        self.mount_point.path()
    }

    /// Returns the mount point as `process` sees it.
    ///
    /// # Panics
    /// Never: a temporary directory has an absolute path.
    pub fn seen_by(&self, process: &Process) -> PathBuf {
        let below_root = self.path().strip_prefix("/").expect("an absolute path");
        Path::new("/proc")
            .join(process.id().to_string())
            .join("root")
            .join(below_root)
    }
}

/// Returns a command line to which a program is added that sees the disk, as `holder` does.
#[must_use]
pub fn inside(holder: &Process) -> CommandLine {
    started_by(&joined(holder))
}

/// Returns the command that runs a program with the disk of `holder`.
pub(crate) fn joined(holder: &Process) -> Vec<String> {
    let mut command = vec!["nsenter", "--mount", "--preserve-credentials"];
    if !is_root() {
        command.push("--user");
    }
    let id = holder.id().to_string();
    command.extend(["--target", &id]);
    command.into_iter().map(str::to_owned).collect()
}

/// Fills the disk.
///
/// # Panics
/// When it does not run out of space.
pub fn fill(directory: &Path) {
    let mut filler = File::create(directory.join(FILLER)).expect("a file");
    let error = (0..1024)
        .find_map(|_| filler.write_all(&[0; 1024]).err())
        .expect("a disk that is full");
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
}

/// Frees all of the taken space.
///
/// # Panics
/// When none was taken.
pub fn make_room(directory: &Path) {
    fs::remove_file(directory.join(FILLER)).expect("the filler");
}

/// Returns the command that runs a program after the mounts of `script`, which no other program sees.
pub(crate) fn own_mounts(script: &str, arguments: &[&str]) -> Vec<String> {
    let mut command = vec!["unshare", "--mount"];
    if !is_root() {
        command.extend(["--user", "--map-root-user"]);
    }
    command.extend(["sh", "-c", script]);
    command.extend(arguments);
    command.into_iter().map(str::to_owned).collect()
}

/// Returns the command line of a wrapper, to which the program is added.
pub(crate) fn started_by(wrapper: &[String]) -> CommandLine {
    let (program, arguments) = wrapper.split_first().expect("a program");
    CommandLine::new(program).arguments(arguments)
}

/// Tries a wrapper; prints a SKIP line about `what` where nothing can be mounted.
pub(crate) fn can_mount(what: &str, wrapper: &[String]) -> bool {
    let end = started_by(wrapper).arguments(["true"]).run();
    if end.code == Some(0) {
        return true;
    }
    let how = "run as root with CAP_SYS_ADMIN, or allow unprivileged user namespaces";
    let why = end.stderr.lines().last().unwrap_or_default();
    skip(&format!("{what}: {why}"), how);
    false
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|ourselves| ourselves.uid() == 0)
}
