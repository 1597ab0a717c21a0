//! HTTP/1.1 messages as bytes: just enough of RFC 9112 to read a whole message, unchanged.
//!
//! A library would normalise the order and case of header names, odd targets and repeated fields,
//! which the tests check.

use std::io::{self, BufRead, Read};

/// A message head (first line and header fields) and its body, as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The bytes up to and including the empty line.
    pub head: Vec<u8>,
    /// The body without its framing.
    pub body: Vec<u8>,
}

/// End of a body that no header delimits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnframedBody {
    /// No body: a request without framing.
    Empty,
    /// Body up to the close of the connection: a response without framing.
    UntilClose,
}

impl Message {
    /// Reads one request; `None` when the peer closed before its first byte.
    ///
    /// # Errors
    /// When the connection fails or ends within the message, or the framing is not readable.
    pub fn read_request(stream: &mut impl BufRead) -> io::Result<Option<Self>> {
        Self::read(stream, |_| true, UnframedBody::Empty)
    }

    /// Reads one response to a request with `method`.
    ///
    /// # Errors
    /// As `read_request`.
    pub fn read_response(stream: &mut impl BufRead, method: &str) -> io::Result<Option<Self>> {
        let has_body = |status| method != "HEAD" && !matches!(status, 100..=199 | 204 | 304);
        Self::read(stream, has_body, UnframedBody::UntilClose)
    }

    /// Reads a head alone.
    ///
    /// # Errors
    /// As `read_request`.
    pub fn read_head(stream: &mut impl BufRead) -> io::Result<Option<Self>> {
        let body = Vec::new();
        Ok(read_head(stream)?.map(|head| Self { head, body }))
    }

    /// Reads the body of a request whose head this is.
    ///
    /// # Errors
    /// As `read_request`.
    pub fn request_body(&self, stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
        self.read_body(stream, UnframedBody::Empty)
    }

    fn read(
        stream: &mut impl BufRead,
        has_body: impl Fn(u16) -> bool,
        unframed: UnframedBody,
    ) -> io::Result<Option<Self>> {
        let Some(mut message) = Self::read_head(stream)? else {
            return Ok(None);
        };
        if has_body(message.status()) {
            message.body = message.read_body(stream, unframed)?;
        }
        Ok(Some(message))
    }

    /// Returns the first line.
    pub fn first_line(&self) -> String {
        self.lines().next().unwrap_or_default()
    }

    /// Returns the header lines in their received order and case.
    pub fn header_lines(&self) -> Vec<String> {
        self.lines()
            .skip(1)
            .filter(|line| !line.is_empty())
            .collect()
    }

    /// Returns the values of a header; its name is case-insensitive.
    pub fn header(&self, name: &str) -> Vec<String> {
        let fields = self.header_lines();
        let values = fields.iter().filter_map(|line| line.split_once(':'));
        values
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
            .collect()
    }

    /// Returns the status of a response; 0 if the first line has no status.
    pub fn status(&self) -> u16 {
        self.first_line()
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0)
    }

    /// Returns the method of a request.
    pub fn method(&self) -> String {
        self.first_line()
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// Returns the request target exactly as on the wire.
    pub fn target(&self) -> Vec<u8> {
        let line = self
            .head
            .split(|byte| *byte == b'\r')
            .next()
            .unwrap_or_default();
        line.split(|byte| *byte == b' ')
            .nth(1)
            .unwrap_or_default()
            .to_vec()
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    ///
    /// # Panics
    /// When the body is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("not JSON ({error}): {}\n{}", self.first_line(), self.text())
        })
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        self.head.split(|byte| *byte == b'\n').map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            String::from_utf8_lossy(line).into_owned()
        })
    }

    fn read_body(&self, stream: &mut impl BufRead, unframed: UnframedBody) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if self
            .header("transfer-encoding")
            .iter()
            .any(|coding| coding.eq_ignore_ascii_case("chunked"))
        {
            read_chunks(stream, &mut body)?;
        } else if let Some(length) = self.header("content-length").first() {
            let length = length.parse::<u64>().map_err(io::Error::other)?;
            let read = stream.take(length).read_to_end(&mut body)?;
            if u64::try_from(read).map_err(io::Error::other)? < length {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the body ended early",
                ));
            }
        } else if unframed == UnframedBody::UntilClose {
            stream.read_to_end(&mut body)?;
        }
        Ok(body)
    }
}

fn read_head(stream: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_until(b'\n', &mut head)? == 0 {
            return if head.is_empty() {
                Ok(None)
            } else {
                Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the head ended early",
                ))
            };
        }
    }
    Ok(Some(head))
}

fn read_chunks(stream: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let size = read_line(stream)?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
        if size == 0 {
            while !read_line(stream)?.is_empty() {}
            return Ok(());
        }
        stream.take(size).read_to_end(body)?;
        read_line(stream)?;
    }
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}
