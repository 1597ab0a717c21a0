//! Real servers that respond to each request with what they have read: method, path and user.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use tempfile::TempDir;
use tests::actors::process::Process;
use tests::services::python::Python;
use tests::services::tls_gateway::program;
use tests::{skip, wait};

use crate::e2e::peers::languages::{announced, go_service, is_installed, start};

/// The demo services: each one's library reads requests.
pub(super) const LANGUAGES: [&str; 6] = ["python", "wsgi", "node", "java", "go", "php"];
/// Those that `echo_servers.py` starts.
const OTHERS: [&str; 11] = [
    "gunicorn",
    "uvicorn-h11",
    "uvicorn-httptools",
    "waitress",
    "hypercorn",
    "cheroot",
    "gevent",
    "aiohttp",
    "tornado",
    "nginx",
    "haproxy",
];

/// A running server.
pub(super) struct RealServer {
    pub(super) name: &'static str,
    address: SocketAddr,
    _process: Process,
    _directory: TempDir,
}

/// A request as a server has read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Echo {
    pub(super) method: String,
    pub(super) path: String,
    /// The account of the user, if there is one.
    pub(super) account: Option<String>,
}

impl RealServer {
    /// Starts all that are installed.
    pub(super) fn start_all() -> Vec<Self> {
        let languages = LANGUAGES.into_iter().filter_map(Self::start);
        let python = Python::with_servers();
        let others = OTHERS
            .into_iter()
            .filter_map(|name| Self::start_other(name, python.as_ref()?));
        languages.chain(others).collect()
    }

    /// Starts the demo service of a language; `None`, with a SKIP line, where it is not installed.
    pub(super) fn start(language: &'static str) -> Option<Self> {
        let command: &[&str] = match language {
            "python" | "wsgi" => &["python3", "service.py"],
            "node" => &["node", "service.js"],
            "java" => &["java", "Service.java"],
            "php" => &["php", "-S", "127.0.0.1:0", "index.php"],
            _ => &["go"],
        };
        if !is_installed(command[0]) {
            skip::skip(&format!("the parser of {language}"), "see languages");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut process = match language {
            "go" => start(language, &[&go_service(directory.path())]),
            _ => start(language, command),
        };
        let address = announced(&mut process).parse().unwrap();
        Some(Self {
            name: language,
            address,
            _process: process,
            _directory: directory,
        })
    }

    fn start_other(name: &'static str, python: &Python) -> Option<Self> {
        let gateway = match name {
            "nginx" | "haproxy" => program(name, "make bench-peers")?.display().to_string(),
            _ => String::new(),
        };
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().display().to_string();
        let mut process = python.start("echo_servers.py", &[name, &gateway, &home]);
        let address = announced(&mut process).parse().unwrap();
        wait::until(name, || TcpStream::connect(address).ok());
        Some(Self {
            name,
            address,
            _process: process,
            _directory: directory,
        })
    }

    /// Returns what this server reads in these bytes, behind which it may be silent for so long.
    pub(super) fn read(&self, bytes: &[u8], timeout: Duration) -> Vec<Echo> {
        let connected = TcpStream::connect(self.address);
        let mut stream = connected.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        stream.set_read_timeout(Some(timeout)).unwrap();
        let _ = stream.write_all(bytes);
        // With the end of its input it would drop what it has read.
        if self.name != "aiohttp" {
            let _ = stream.shutdown(Shutdown::Write);
        }
        let (mut received, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut part) {
            received.extend_from_slice(&part[..count]);
        }
        echoes(&String::from_utf8_lossy(&received).replace("\\/", "/"))
    }
}

/// Returns the requests in a server's responses, of which the last one may be cut off.
fn echoes(text: &str) -> Vec<Echo> {
    let parts = text.split("\"method\":").skip(1);
    let echo = |part: &str| {
        Some(Echo {
            method: string(part)?.to_owned(),
            path: member(part, "path")?.to_owned(),
            account: member(part, "account").map(str::to_owned),
        })
    };
    parts.filter_map(echo).collect()
}

fn member<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    string(text.split_once(&format!("\"{name}\":"))?.1)
}

/// Returns the string that a text begins with.
fn string(text: &str) -> Option<&str> {
    let (value, _) = text.trim_start().strip_prefix('"')?.split_once('"')?;
    Some(value)
}
