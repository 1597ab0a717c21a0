//! Node programs that stand for another implementation.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process::{CommandLine, Process};
use crate::skip;

/// Node with the packages of `tests/interop/`.
#[derive(Debug)]
pub struct Node(());

impl Node {
    /// Returns Node if `package` is installed; `None`, with a SKIP line, otherwise.
    pub fn with(package: &str) -> Option<Self> {
        if interop().join("node_modules").join(package).is_dir() {
            return Some(Self(()));
        }
        skip::skip(&format!("the tests with {package}"), "make venv");
        None
    }

    /// Starts a script of `tests/interop/` that keeps running.
    pub fn start(&self, script: &str, arguments: &[&str]) -> Process {
        command(script).arguments(arguments.iter().copied()).start()
    }

    /// Runs a script of `tests/interop/` with this input.
    ///
    /// # Panics
    /// When it fails, or prints no JSON.
    pub fn run(&self, script: &str, input: &Value) -> Value {
        let run = command(script).input(input.to_string()).run();
        serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{script}: {}", run.stderr))
    }
}

fn command(script: &str) -> CommandLine {
    CommandLine::new("node").arguments([interop().join(script)])
}

fn interop() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interop")
}
