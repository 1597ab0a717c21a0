//! Python programs that stand for another implementation.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::process::{CommandLine, Process};
use crate::skip;

/// A Python interpreter with PyJWT.
#[derive(Debug)]
pub struct Python(PathBuf);

impl Python {
    /// Returns `POSTERN_TEST_PYTHON`, or a `python3` that imports PyJWT; `None`, with a SKIP line,
    /// otherwise.
    pub fn with_pyjwt() -> Option<Self> {
        let python = Self(
            std::env::var_os("POSTERN_TEST_PYTHON")
                .unwrap_or_else(|| "python3".into())
                .into(),
        );
        let imports = Command::new(&python.0)
            .args(["-c", "import jwt, cryptography"])
            .output();
        if imports.is_ok_and(|output| output.status.success()) {
            return Some(python);
        }
        let how = "python3 -m venv V && V/bin/pip install 'pyjwt[crypto]', then POSTERN_TEST_PYTHON=V/bin/python";
        skip::skip("the interop tests with PyJWT", how);
        None
    }

    /// Returns the same interpreter if it imports grpcio and websockets; `None`, with a SKIP line,
    /// otherwise.
    pub fn with_protocols() -> Option<Self> {
        let python = Self(
            std::env::var_os("POSTERN_TEST_PYTHON")
                .unwrap_or_else(|| "python3".into())
                .into(),
        );
        let imports = Command::new(&python.0)
            .args(["-c", "import grpc, websockets"])
            .output();
        if imports.is_ok_and(|output| output.status.success()) {
            return Some(python);
        }
        skip::skip(
            "the conformance tests with grpcio and websockets",
            "make venv",
        );
        None
    }

    /// Returns the same interpreter if it imports authlib and requests-oauthlib; `None`, with a SKIP
    /// line, otherwise.
    pub fn with_oauth() -> Option<Self> {
        let python = Self(
            std::env::var_os("POSTERN_TEST_PYTHON")
                .unwrap_or_else(|| "python3".into())
                .into(),
        );
        let imports = Command::new(&python.0)
            .args(["-c", "import authlib, requests_oauthlib"])
            .output();
        if imports.is_ok_and(|output| output.status.success()) {
            return Some(python);
        }
        skip::skip("the tests with authlib and requests-oauthlib", "make venv");
        None
    }

    /// Starts a script of `tests/interop/` that keeps running.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&self, script: &str, arguments: &[&str]) -> Process {
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("interop")
            .join(script);
        CommandLine::new(&self.0)
            .arguments([script])
            .arguments(arguments.iter().copied())
            .start()
    }

    /// Runs a script of `tests/interop/` with this input.
    ///
    /// # Panics
    /// When it fails, or prints no JSON.
    pub fn run(&self, script: &str, input: &Value) -> Value {
        let output = self.output(script, input);
        assert!(
            output.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("JSON on stdout")
    }

    /// Returns true if a script succeeds with this input.
    pub fn succeeds(&self, script: &str, input: &Value) -> bool {
        self.output(script, input).status.success()
    }

    fn output(&self, script: &str, input: &Value) -> Output {
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("interop")
            .join(script);
        let mut child = Command::new(&self.0)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let mut stdin = child.stdin.take().expect("a piped stdin");
        stdin
            .write_all(input.to_string().as_bytes())
            .expect("the script reads its input");
        drop(stdin);
        child.wait_with_output().expect("the script ends")
    }
}
