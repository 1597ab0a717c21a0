//! One connection that stays open: request bytes out, status and body back. It reuses its buffer,
//! because the load generator shares the machine with the measured program.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any response of a measured program takes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Larger than any head of a measured program.
const BUFFER_BYTES: usize = 64 * 1024;

/// The connection.
#[derive(Debug)]
pub struct KeepAlive {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Range of the last response's body in the buffer.
    body: std::ops::Range<usize>,
}

impl KeepAlive {
    /// Connects.
    ///
    /// # Errors
    /// When the address accepts no connection.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream,
            buffer: vec![0; BUFFER_BYTES],
            body: 0..0,
        })
    }

    /// Sends one request and returns the status of its response.
    ///
    /// # Errors
    /// When the connection fails or ends, or the response has no `Content-Length`.
    pub fn exchange(&mut self, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request)?;
        let mut filled = 0;
        loop {
            let space = self.buffer.get_mut(filled..).unwrap_or_default();
            let count = self.stream.read(space)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += count;
            if let Some(head) = Head::parse(self.buffer.get(..filled).unwrap_or_default())? {
                self.body = head.body;
                if filled >= self.body.end {
                    return Ok(head.status);
                }
                let missing = self.buffer.get_mut(filled..self.body.end);
                let missing = missing.ok_or_else(|| io::Error::other("a response too long"))?;
                self.stream.read_exact(missing)?;
                return Ok(head.status);
            }
        }
    }

    /// Returns the first value of a field of the last response; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let head = std::str::from_utf8(self.buffer.get(..self.body.start)?).ok()?;
        head.split("\r\n")
            .filter_map(|line| line.split_once(':'))
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    /// Returns the body of the last response.
    pub fn body(&self) -> &[u8] {
        self.buffer.get(self.body.clone()).unwrap_or_default()
    }
}

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// Range of the body, counted from the first byte of the head.
    pub body: std::ops::Range<usize>,
}

impl Head {
    /// Parses a head; returns `None` while it is incomplete.
    ///
    /// # Errors
    /// For bytes that are not an HTTP/1.1 response, or a response without a known end.
    pub fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let malformed = || io::Error::other("not an HTTP/1.1 response");
        let head =
            std::str::from_utf8(bytes.get(..end).unwrap_or_default()).map_err(|_| malformed())?;
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok())
            .ok_or_else(malformed)?;
        let start = end + 4;
        let length = match status {
            204 | 304 => 0,
            _ => content_length(head).ok_or_else(|| io::Error::other("no Content-Length"))?,
        };
        Ok(Some(Self {
            status,
            body: start..start + length,
        }))
    }
}

fn content_length(head: &str) -> Option<usize> {
    head.split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
}

/// Returns a GET as bytes, with more header lines.
pub fn get(path: &str, lines: &[&str]) -> Vec<u8> {
    request("GET", path, lines, "")
}

/// Returns a GET with a token.
pub fn get_with_token(path: &str, token: &str) -> Vec<u8> {
    get(path, &[&format!("Authorization: Bearer {token}")])
}

/// Returns a POST as bytes, with more header lines.
pub fn post(path: &str, lines: &[&str], body: &str) -> Vec<u8> {
    let length = format!("Content-Length: {}", body.len());
    request("POST", path, &[lines, &[&length]].concat(), body)
}

/// Returns a POST of JSON as bytes.
pub fn post_json(path: &str, json: &str) -> Vec<u8> {
    post(path, &["Content-Type: application/json"], json)
}

fn request(method: &str, path: &str, lines: &[&str], body: &str) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: bench\r\n{lines}\r\n{body}").into_bytes()
}
