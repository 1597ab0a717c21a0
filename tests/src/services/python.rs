//! Python programs that stand for another implementation.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::actors::process::{CommandLine, Process};
use crate::actors::programs::interop;
use crate::skip;

/// A Python interpreter.
#[derive(Debug)]
pub struct Python(PathBuf);

impl Python {
    /// Returns an interpreter with PyJWT; `None`, with a SKIP line, otherwise.
    pub fn with_pyjwt() -> Option<Self> {
        let how = "python3 -m venv V && V/bin/pip install 'pyjwt[crypto]', then POSTERN_TEST_PYTHON=V/bin/python";
        Self::importing("jwt, cryptography", how)
    }

    /// Returns an interpreter with grpcio and websockets; `None`, with a SKIP line, otherwise.
    pub fn with_protocols() -> Option<Self> {
        Self::importing("grpc, websockets", "make venv")
    }

    /// Returns an interpreter with authlib and requests-oauthlib; `None`, with a SKIP line, otherwise.
    pub fn with_oauth() -> Option<Self> {
        Self::importing("authlib, requests_oauthlib", "make venv")
    }

    /// Returns an interpreter with requests-oauth2client; `None`, with a SKIP line, otherwise.
    pub fn with_dpop() -> Option<Self> {
        Self::importing("requests_oauth2client", "make venv")
    }

    /// Returns an interpreter with the SDK of MCP and fastmcp; `None`, with a SKIP line, otherwise.
    pub fn with_mcp() -> Option<Self> {
        Self::importing("mcp, fastmcp", "make venv")
    }

    /// Returns an interpreter with servers of HTTP; `None`, with a SKIP line, otherwise.
    pub fn with_servers() -> Option<Self> {
        Self::importing(
            "gunicorn, waitress, hypercorn, cheroot, gevent, aiohttp, tornado, uvicorn, httptools",
            "make venv",
        )
    }

    /// Returns `POSTERN_TEST_PYTHON`, or `python3`, if it imports these modules.
    fn importing(modules: &str, how_to_get_them: &str) -> Option<Self> {
        let named = std::env::var_os("POSTERN_TEST_PYTHON");
        let python = Self(named.unwrap_or_else(|| "python3".into()).into());
        let imports = Command::new(&python.0)
            .args(["-c", &format!("import {modules}")])
            .output();
        if imports.is_ok_and(|output| output.status.success()) {
            return Some(python);
        }
        skip::skip(
            &format!("the tests with Python's {modules}"),
            how_to_get_them,
        );
        None
    }

    /// Starts a script of `tests/interop/` that keeps running.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&self, script: &str, arguments: &[&str]) -> Process {
        self.command(script)
            .arguments(arguments.iter().copied())
            .start()
    }

    /// Runs a script of `tests/interop/` with this input.
    ///
    /// # Panics
    /// When it fails, or prints no JSON.
    pub fn run(&self, script: &str, input: &Value) -> Value {
        self.command(script).run_json(input)
    }

    /// Returns true if a script succeeds with this input.
    pub fn succeeds(&self, script: &str, input: &Value) -> bool {
        let run = self.command(script).input(input.to_string()).run();
        run.code == Some(0)
    }

    fn command(&self, script: &str) -> CommandLine {
        CommandLine::new(&self.0).arguments([interop(script)])
    }
}
