//! Locations of the programs: the profile directory that holds the test executable.

use std::path::{Path, PathBuf};

use crate::actors::process::{CommandLine, Finished};

/// One of the programs under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `auth-server`
    AuthServer,
    /// `sidecar`
    Sidecar,
    /// `postern-k8s`
    Kubernetes,
}

impl Program {
    /// The two programs that serve requests.
    pub const ALL: [Self; 2] = [Self::AuthServer, Self::Sidecar];

    /// Returns the name of the executable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AuthServer => "auth-server",
            Self::Sidecar => "sidecar",
            Self::Kubernetes => "postern-k8s",
        }
    }

    /// Returns the path of the executable, beside cargo's `deps/` for any `CARGO_TARGET_DIR` and
    /// profile.
    ///
    /// # Panics
    /// When it has not been built.
    pub fn path(self) -> PathBuf {
        let test_executable = std::env::current_exe().expect("the path of the test executable");
        let path = test_executable
            .parent()
            .and_then(Path::parent)
            .expect("a test executable lives in target/PROFILE/deps")
            .join(self.name());
        assert!(
            path.is_file(),
            "{} is missing: run `cargo build --workspace` first (`make test` does)",
            path.display()
        );
        path
    }

    /// Returns its command line without arguments.
    ///
    /// # Panics
    /// When it has not been built.
    pub fn command(self) -> CommandLine {
        CommandLine::new(self.path())
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When it does not start or does not end.
    pub fn run(self, arguments: &[&str]) -> Finished {
        self.command().arguments(arguments).run()
    }
}

/// Returns the root of the repository.
///
/// # Panics
/// Never: this package lives one directory below it.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package stands in the repository")
}

/// Returns the path of a file in `tests/interop/`.
pub fn interop(name: &str) -> PathBuf {
    repository().join("tests/interop").join(name)
}
