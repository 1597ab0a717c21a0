//! Debian's `redis-server` on a free port, without persistence; gone on drop.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use tempfile::TempDir;

use crate::process::{CommandLine, Process};
use crate::{skip, wait};

/// The key of the contract's private value (ADR 0006).
pub const PRIVATE_KEY: &str = "{auth:user-token}:private";
/// The key of the contract's public value.
pub const PUBLIC_KEY: &str = "{auth:user-token}:public";

/// A running Redis.
#[derive(Debug)]
pub struct RedisServer {
    address: SocketAddr,
    process: Process,
    _directory: TempDir,
}

impl RedisServer {
    /// Starts one; `None`, with a SKIP line, where Redis is not installed.
    pub fn start() -> Option<Self> {
        Self::start_on(free_address())
    }

    /// Starts one on an address that was known before.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn start_on(address: SocketAddr) -> Option<Self> {
        if !is_installed() {
            skip::skip(
                "the tests with a Redis store",
                "apt-get install redis-server",
            );
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let port = address.port().to_string();
        let process = CommandLine::new("redis-server")
            .arguments([
                "--bind",
                "127.0.0.1",
                "--port",
                &port,
                "--save",
                "",
                "--appendonly",
                "no",
                "--dir",
            ])
            .arguments([directory.path()])
            .start();
        let redis = Self {
            address,
            process,
            _directory: directory,
        };
        wait::until("redis-server to answer", || {
            redis
                .try_command(&["PING"])
                .is_ok_and(|pong| pong.as_deref() == Some("PONG"))
                .then_some(())
        });
        Some(redis)
    }

    /// As `--store` wants it.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// One command; `None` for a nil answer.
    ///
    /// # Panics
    /// When Redis cannot be reached or answers with an error.
    pub fn command(&self, words: &[&str]) -> Option<String> {
        self.try_command(words)
            .unwrap_or_else(|error| panic!("redis {words:?}: {error}"))
    }

    /// The pair that the store holds: private and public value.
    pub fn pair(&self) -> (Option<String>, Option<String>) {
        (
            self.command(&["GET", PRIVATE_KEY]),
            self.command(&["GET", PUBLIC_KEY]),
        )
    }

    /// What it wrote to its log.
    pub fn output(&self) -> String {
        self.process.output()
    }

    fn try_command(&self, words: &[&str]) -> std::io::Result<Option<String>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(wait::PATIENCE))?;
        stream.write_all(&encode(words))?;
        read_reply(&mut BufReader::new(stream))
    }
}

/// An address that nobody uses at the moment.
///
/// # Panics
/// When no port is free.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address")
}

fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join("redis-server").is_file())
}

/// A command in the Redis serialisation protocol: an array of bulk strings.
fn encode(words: &[&str]) -> Vec<u8> {
    let parts = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), parts.collect::<String>()).into_bytes()
}

/// A simple string, number, bulk string or error; arrays are not asked for.
fn read_reply(stream: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let line = line.trim_end();
    match line.split_at_checked(1) {
        Some(("+" | ":", text)) => Ok(Some(text.to_owned())),
        Some(("$", "-1")) => Ok(None),
        Some(("$", length)) => {
            let length: u64 = length.parse().map_err(std::io::Error::other)?;
            let mut text = String::new();
            stream.take(length).read_to_string(&mut text)?;
            Ok(Some(text))
        }
        _ => Err(std::io::Error::other(line.to_owned())),
    }
}
