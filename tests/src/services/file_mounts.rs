//! Files and directories that are mounted for one program, as `docker run -v` and Kubernetes do it: each
//! is a bind mount, in the program's own mount namespace.

use std::fs::{self, File};
use std::path::PathBuf;

use tempfile::TempDir;

use crate::actors::process::CommandLine;
use crate::actors::programs::Program;
use crate::services::small_disk::{can_mount, own_mounts, started_by};
use crate::wire::certificates::write_private;

const MOUNT: &str = r#"while [ "$1" != -- ]; do
    mount --bind "$1" "$2" && shift 2 || exit 1
done && shift && exec "$@""#;

/// The mounts of one program, by the names of what is mounted.
#[derive(Debug)]
pub struct FileMounts {
    home: TempDir,
    names: Vec<String>,
}

impl FileMounts {
    /// Mounts files with these texts, each alone; returns `None`, with a SKIP line, where nothing can
    /// be mounted.
    ///
    /// # Panics
    /// In CI where nothing can be mounted, or without a temporary directory.
    pub fn of(files: &[(&str, &str)]) -> Option<Self> {
        let mut mounts = Self {
            home: tempfile::tempdir().expect("a directory"),
            names: Vec::new(),
        };
        for side in ["host", "inside"] {
            fs::create_dir(mounts.home.path().join(side)).expect("a directory");
        }
        for (name, text) in files {
            write_private(&mounts.host(name), text);
            File::create(mounts.inside(name)).expect("a file");
            mounts.names.push((*name).to_owned());
        }
        can_mount("a mounted file", &mounts.wrapper()).then_some(mounts)
    }

    /// Mounts a directory besides.
    ///
    /// # Panics
    /// Without the right to make it.
    #[must_use]
    pub fn and_directory(mut self, name: &str) -> Self {
        for directory in [self.host(name), self.inside(name)] {
            fs::create_dir(directory).expect("a directory");
        }
        self.names.push(name.to_owned());
        self
    }

    /// Returns the path outside of the mounts.
    pub fn host(&self, name: &str) -> PathBuf {
        self.home.path().join("host").join(name)
    }

    /// Returns the path that the program uses.
    pub fn inside(&self, name: &str) -> PathBuf {
        self.home.path().join("inside").join(name)
    }

    /// Replaces a file on the host by rename, as editors, our commands and deployments do.
    ///
    /// # Panics
    /// Where it cannot be replaced.
    pub fn replace(&self, name: &str, text: &str) {
        let new = self.host(&format!("{name}.other"));
        write_private(&new, text);
        fs::rename(new, self.host(name)).expect("another file");
    }

    /// Returns the command that runs a program with the mounts; the program follows it.
    pub fn wrapper(&self) -> Vec<String> {
        let pair = |name: &String| [self.host(name), self.inside(name)];
        let paths = self.names.iter().flat_map(pair);
        let paths: Vec<_> = paths.map(|path| path.display().to_string()).collect();
        let mut arguments = vec!["sh"];
        arguments.extend(paths.iter().map(String::as_str));
        arguments.push("--");
        own_mounts(MOUNT, &arguments)
    }

    /// Returns the command line of `program` with the mounts.
    pub fn command_line(&self, program: Program) -> CommandLine {
        started_by(&self.wrapper()).arguments([program.path()])
    }
}
