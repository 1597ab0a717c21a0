//! Debian's `redis-server` on a free port, without persistence; stopped on drop.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use tempfile::TempDir;

use crate::actors::process::{CommandLine, Process};
use crate::actors::programs::repository;
use crate::wire::certificates::Authority;
use crate::wire::free_address::free_address;
use crate::{skip, wait};

/// Redis key of the contract's private value (ADR 0006).
pub const PRIVATE_KEY: &str = "{auth:user-token}:private";
/// Redis key of the contract's public value.
pub const PUBLIC_KEY: &str = "{auth:user-token}:public";

/// Returns the rights of the user in docs/store.md: `+eval` and the others.
///
/// # Panics
/// When they do not stand there.
pub fn documented_rights() -> Vec<String> {
    let page = repository().join("docs/store.md");
    let page = std::fs::read_to_string(page).expect("docs/store.md");
    let (_, command) = page
        .split_once("ACL SETUSER postern on >PASSWORD ~{auth:user-token}:*")
        .expect("the user of the store");
    let (command, _) = command.split_once("```").expect("the end of the command");
    let words = command.split_whitespace();
    words
        .filter(|word| word.starts_with('+'))
        .map(str::to_owned)
        .collect()
}

/// A running Redis.
#[derive(Debug)]
pub struct Redis {
    /// Address for the harness.
    address: SocketAddr,
    /// TLS address for all other clients, if there is one.
    tls: Option<SocketAddr>,
    process: Process,
    _directory: TempDir,
}

impl Redis {
    /// Starts a server; returns `None`, with a SKIP line, where Redis is not installed.
    pub fn start() -> Option<Self> {
        Self::start_on(free_address())
    }

    /// Starts a server on an address that was known before.
    pub fn start_on(address: SocketAddr) -> Option<Self> {
        Self::start_with(address, &[])
    }

    /// Starts a server with TLS, for clients with a certificate of `authority`.
    pub fn start_with_tls(authority: &Authority) -> Option<Self> {
        Self::start_for(Some(authority), &[])
    }

    /// Starts a server with more options; with an authority it uses TLS, also towards other
    /// servers.
    pub(crate) fn start_for(authority: Option<&Authority>, options: &[&str]) -> Option<Self> {
        let tls = authority.map(TlsPort::new);
        let secured = tls.iter().flat_map(|tls| &tls.options).map(String::as_str);
        let options: Vec<_> = secured.chain(options.iter().copied()).collect();
        let server = Self::start_with(free_address(), &options)?;
        Some(Self {
            tls: tls.map(|tls| tls.address),
            ..server
        })
    }

    /// Starts a server as `start_on`, with more options.
    ///
    /// # Panics
    /// When it does not respond.
    pub fn start_with(address: SocketAddr, options: &[&str]) -> Option<Self> {
        if !is_installed() {
            let how = "apt-get install redis-server";
            skip::skip("the tests with a Redis store", how);
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let port = address.port().to_string();
        let process = CommandLine::new("redis-server")
            .arguments(["--bind", "127.0.0.1", "--port", &port])
            .arguments(["--save", "", "--appendonly", "no", "--dir"])
            .arguments([directory.path()])
            .arguments(options)
            .start();
        Some(Self::running(address, process, directory))
    }

    /// Waits until the server responds.
    pub(crate) fn running(address: SocketAddr, process: Process, directory: TempDir) -> Self {
        let redis = Self {
            address,
            tls: None,
            process,
            _directory: directory,
        };
        wait::until("redis-server to respond", || {
            redis
                .try_command(&["PING"])
                .is_ok_and(|pong| pong.as_deref() == Some("PONG"))
        });
        redis
    }

    /// Sends a signal, such as `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Returns the value for `--store`.
    pub fn url(&self) -> String {
        let transport = transport(self.is_secured());
        format!("{transport}://{}", self.served_at())
    }

    pub(crate) const fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the address for clients and other servers.
    pub(crate) fn served_at(&self) -> SocketAddr {
        self.tls.unwrap_or(self.address)
    }

    /// Returns the address without TLS.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes the user that docs/store.md describes, with a password, and changes its rights.
    pub fn user(&self, name: &str, password: &str, changed: &[&str]) {
        let password = format!(">{password}");
        let rights = documented_rights();
        let words = ["ACL", "SETUSER", name, "reset", "on", &password];
        let words = words.into_iter().chain(["~{auth:user-token}:*"]);
        let words = words.chain(rights.iter().map(String::as_str));
        let words: Vec<_> = words.chain(changed.iter().copied()).collect();
        self.command(&words);
    }

    /// Runs one command; returns `None` for a nil response.
    ///
    /// # Panics
    /// When Redis is unreachable or responds with an error.
    pub fn command(&self, words: &[&str]) -> Option<String> {
        self.try_command(words)
            .unwrap_or_else(|error| panic!("redis {words:?}: {error}"))
    }

    /// Returns the private and the public value in the store.
    pub fn pair(&self) -> (Option<String>, Option<String>) {
        (
            self.command(&["GET", PRIVATE_KEY]),
            self.command(&["GET", PUBLIC_KEY]),
        )
    }

    /// Returns the server's log.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Runs a command as `command`, on a server that may be down.
    ///
    /// # Errors
    /// When it is unreachable or responds with an error.
    pub fn try_command(&self, words: &[&str]) -> std::io::Result<Option<String>> {
        session(self.address, &[words])
    }

    /// Becomes a replica of another server, and waits until it holds what that one held before.
    ///
    /// # Panics
    /// When it does not.
    pub fn follow(&self, other: &Self) {
        let (host, port) = (other.served_at().ip(), other.served_at().port());
        self.command(&["REPLICAOF", &host.to_string(), &port.to_string()]);
        self.until_following();
        let held = other.replicated("master_repl_offset");
        wait::until("the replica to have caught up", || {
            self.replicated("slave_repl_offset") >= held
        });
    }

    /// Returns an offset of its replication; `None` while it has none.
    fn replicated(&self, name: &str) -> Option<u64> {
        let replication = self.command(&["INFO", "replication"])?;
        let mut lines = replication.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok())
    }

    /// Waits until the link to the server that it replicates is up.
    ///
    /// # Panics
    /// When it does not come up.
    pub(crate) fn until_following(&self) {
        wait::until("the replica to follow", || {
            let replication = self.command(&["INFO", "replication"])?;
            replication.contains("master_link_status:up").then_some(())
        });
    }

    /// Runs commands on one connection, such as those after an `AUTH`; returns the response to the
    /// last one.
    ///
    /// # Panics
    /// When a command fails.
    pub fn session(&self, commands: &[&[&str]]) -> Option<String> {
        session(self.address, commands).unwrap_or_else(|error| panic!("redis: {error}"))
    }
}

/// A TLS port, beside the harness's port.
pub(crate) struct TlsPort {
    pub(crate) address: SocketAddr,
    /// Options of the command line.
    pub(crate) options: Vec<String>,
}

impl TlsPort {
    pub(crate) fn new(authority: &Authority) -> Self {
        let address = free_address();
        let port = address.port().to_string();
        let certificate = authority.issue(&format!("redis-{port}"));
        let path = |path: &Path| path.display().to_string();
        let options = [
            ("--tls-port", port),
            ("--tls-cert-file", path(&certificate.cert)),
            ("--tls-key-file", path(&certificate.key)),
            ("--tls-ca-cert-file", path(&authority.file())),
            ("--tls-replication", "yes".to_owned()),
            ("--tls-cluster", "yes".to_owned()),
        ];
        Self {
            address,
            options: options
                .into_iter()
                .flat_map(|(name, value)| [name.to_owned(), value])
                .collect(),
        }
    }
}

/// Returns the first part of a URL's scheme.
pub(crate) const fn transport(is_secured: bool) -> &'static str {
    if is_secured { "rediss" } else { "redis" }
}

/// Runs commands on one connection; returns the response to the last one.
pub(crate) fn session(
    address: SocketAddr,
    commands: &[&[&str]],
) -> std::io::Result<Option<String>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(wait::TIMEOUT))?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let mut last = None;
    for words in commands {
        stream.write_all(&encode(words))?;
        last = read_reply(&mut replies)?;
    }
    Ok(last)
}

pub(crate) fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join("redis-server").is_file())
}

/// Encodes a command in the Redis serialisation protocol: an array of bulk strings.
fn encode(words: &[&str]) -> Vec<u8> {
    let parts = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), parts.collect::<String>()).into_bytes()
}

/// Reads a simple string, number, bulk string or error; returns an array with one item a line.
fn read_reply(stream: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let line = line.trim_end();
    match line.split_at_checked(1) {
        Some(("+" | ":", text)) => Ok(Some(text.to_owned())),
        Some(("$" | "*", "-1")) => Ok(None),
        Some(("*", count)) => {
            let count: usize = count.parse().map_err(std::io::Error::other)?;
            let items: std::io::Result<Vec<_>> = (0..count).map(|_| read_reply(stream)).collect();
            let items: Vec<_> = items?.into_iter().map(Option::unwrap_or_default).collect();
            Ok(Some(items.join("\n")))
        }
        Some(("$", length)) => {
            let length: u64 = length.parse().map_err(std::io::Error::other)?;
            let mut text = String::new();
            stream.take(length).read_to_string(&mut text)?;
            stream.read_exact(&mut [0; 2])?;
            Ok(Some(text))
        }
        _ => Err(std::io::Error::other(line.to_owned())),
    }
}
