//! A file system of a few kilobytes that one program alone sees: a disk that can be filled without
//! harming anybody.
//!
//! It is mounted in a mount namespace of the program's own, and is gone when the program is. From outside,
//! its files are below `/proc/PID/root`.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::process::{CommandLine, Process};
use crate::skip::skip;

/// A few pages: a file of ours takes one.
const SIZE: &str = "size=64k,mode=700";
const MOUNT: &str = r#"mount -t tmpfs -o "$1" none "$0" && shift && exec "$@""#;
const FILLER: &str = "filler";

/// Where the disk is mounted.
#[derive(Debug)]
pub struct SmallDisk {
    mount_point: TempDir,
}

impl SmallDisk {
    /// `None` where no file system can be mounted; says so then.
    ///
    /// # Panics
    /// In CI where none can be mounted, or without a temporary directory.
    pub fn new() -> Option<Self> {
        let disk = Self {
            mount_point: tempfile::tempdir().expect("a directory"),
        };
        let (program, arguments) = disk.command();
        let tried = CommandLine::new(program).arguments(arguments);
        let end = tried.arguments(["true"]).run();
        if end.code == Some(0) {
            return Some(disk);
        }
        let how = "run as root with CAP_SYS_ADMIN, or allow unprivileged user namespaces";
        let why = end.stderr.lines().last().unwrap_or_default();
        skip(&format!("a full disk: {why}"), how);
        None
    }

    /// Mounts the disk for as long as the returned process lives; any program reaches it at
    /// [`seen_by`](Self::seen_by) that process.
    pub fn mounted(&self) -> Process {
        let (program, arguments) = self.command();
        let mut holder = CommandLine::new(program)
            .arguments(arguments)
            .arguments(["sh", "-c", "echo mounted && exec sleep 600"])
            .start();
        holder.announced("mounted");
        holder
    }

    /// What a program is run by to see the disk; the program stands behind it.
    pub fn wrapper(&self) -> Vec<String> {
        let (program, arguments) = self.command();
        [vec![program.to_owned()], arguments].concat()
    }

    fn command(&self) -> (&'static str, Vec<String>) {
        let mount_point = self.path().display().to_string();
        let mut arguments = vec!["--mount"];
        if !is_root() {
            arguments.extend(["--user", "--map-root-user"]);
        }
        arguments.extend(["sh", "-c", MOUNT, &mount_point, SIZE]);
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        ("unshare", arguments)
    }

    /// The mount point, which is an empty directory for everybody else.
    pub fn path(&self) -> &Path {
        self.mount_point.path()
    }

    /// The same place as `process` sees it.
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

/// Takes all the room there is.
///
/// # Panics
/// When it does not run out.
pub fn fill(directory: &Path) {
    let mut filler = File::create(directory.join(FILLER)).expect("a file");
    let error = (0..1024)
        .find_map(|_| filler.write_all(&[0; 1024]).err())
        .expect("a disk that is full");
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
}

/// Gives `bytes` of it back, a multiple of a page.
///
/// # Panics
/// When less was taken.
pub fn make_some_room(directory: &Path, bytes: u64) {
    let filler = File::options().write(true).open(directory.join(FILLER));
    let filler = filler.expect("the filler");
    let taken = filler.metadata().expect("its length").len();
    filler.set_len(taken - bytes).expect("a shorter filler");
}

/// Gives it back.
///
/// # Panics
/// When it was not taken.
pub fn make_room(directory: &Path) {
    fs::remove_file(directory.join(FILLER)).expect("the filler");
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|ourselves| ourselves.uid() == 0)
}
