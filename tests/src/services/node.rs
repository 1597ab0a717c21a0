//! Node programs that stand for another implementation.

use serde_json::Value;

use crate::actors::process::{CommandLine, Process};
use crate::actors::programs::interop;
use crate::skip;

/// Node with the packages of `tests/interop/`.
#[derive(Debug)]
pub struct Node(());

impl Node {
    /// Returns Node if `package` is installed; `None`, with a SKIP line, otherwise.
    pub fn with(package: &str) -> Option<Self> {
        if interop("node_modules").join(package).is_dir() {
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
        command(script).run_json(input)
    }
}

fn command(script: &str) -> CommandLine {
    CommandLine::new("node").arguments([interop(script)])
}
