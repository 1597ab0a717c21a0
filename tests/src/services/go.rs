//! Go programs that stand for another implementation, built with Debian's packages.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::actors::process::CommandLine;
use crate::actors::programs::interop;
use crate::skip;

/// The folder of Debian's Go packages.
const PACKAGES: &str = "/usr/share/gocode";

/// A built program, in a folder that lives as long as it.
#[derive(Debug)]
pub struct GoProgram(TempDir);

impl GoProgram {
    /// Builds a source of `tests/interop/` that imports `package`; `None`, with a SKIP line, where
    /// Go or Debian's `debian` is not installed.
    ///
    /// # Panics
    /// When it does not compile.
    pub fn built(source: &str, package: &str, debian: &str) -> Option<Self> {
        let is_here = Path::new(PACKAGES).join("src").join(package).is_dir();
        if !is_here || Command::new("go").arg("version").output().is_err() {
            let how = format!("apt-get install golang-go {debian}");
            skip::skip(&format!("the test with Go's {package}"), &how);
            return None;
        }
        let program = Self(tempfile::tempdir().expect("a directory"));
        // With the cache in the home directory, and without a limit: the first build takes its time.
        let built = Command::new("go")
            .env("GO111MODULE", "off")
            .env("GOPATH", PACKAGES)
            .args(["build", "-o"])
            .arg(program.path())
            .arg(interop(source))
            .output()
            .expect("Go starts");
        let stderr = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{stderr}");
        Some(program)
    }

    /// Runs it with this input.
    ///
    /// # Panics
    /// When it fails, or prints no JSON.
    pub fn run(&self, input: &Value) -> Value {
        CommandLine::new(self.path()).run_json(input)
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("program")
    }
}
