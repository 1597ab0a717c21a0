//! A client that writes given bytes and reads the response.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::wait::TIMEOUT;
use crate::wire::message::Message;

/// One connection.
#[derive(Debug)]
pub struct RawClient {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
}

impl RawClient {
    /// Connects with the harness's deadline for every read and write.
    ///
    /// # Panics
    /// When the address accepts no connection.
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap_or_else(|error| panic!("connect to {address}: {error}"))
    }

    /// Connects as `connect`.
    ///
    /// # Errors
    /// When the address accepts no connection.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(address).map(Self::on)
    }

    /// Takes a connection, with the harness's deadlines.
    ///
    /// # Panics
    /// When it accepts no deadlines.
    pub fn on(writer: TcpStream) -> Self {
        writer
            .set_read_timeout(Some(TIMEOUT))
            .expect("a read deadline");
        writer
            .set_write_timeout(Some(TIMEOUT))
            .expect("a write deadline");
        writer.set_nodelay(true).expect("no delay");
        let reader = BufReader::new(writer.try_clone().expect("a second handle"));
        Self { writer, reader }
    }

    /// Writes bytes and ignores errors: a peer that rejects early may close meanwhile, and the test
    /// checks its response.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.writer.write_all(bytes);
    }

    /// Returns a second handle of the connection, for a parallel writer.
    ///
    /// # Panics
    /// When the system has no handle left.
    pub fn handle(&self) -> TcpStream {
        self.writer.try_clone().expect("another handle")
    }

    /// Closes the write half of the connection.
    pub fn finish(&self) {
        let _ = self.writer.shutdown(Shutdown::Write);
    }

    /// Reads the response to a request with `method`, without interim responses (1xx).
    ///
    /// # Errors
    /// When the peer closes without a response, or none arrives in time.
    pub fn try_response(&mut self, method: &str) -> io::Result<Message> {
        loop {
            let response = self.next_message(method)?;
            if !(100..200).contains(&response.status()) || response.status() == 101 {
                return Ok(response);
            }
        }
    }

    /// Reads a response as `try_response`.
    ///
    /// # Panics
    /// When there is no response.
    pub fn response(&mut self, method: &str) -> Message {
        self.try_response(method)
            .unwrap_or_else(|error| panic!("no response to {method}: {error}"))
    }

    /// Reads this many bytes.
    ///
    /// # Panics
    /// When they do not arrive.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.reader
            .read_exact(&mut bytes)
            .unwrap_or_else(|error| panic!("{count} bytes: {error}"));
        bytes
    }

    /// Reads everything up to and including `end`.
    ///
    /// # Panics
    /// When it does not arrive.
    pub fn text_until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            bytes.extend(self.bytes(1));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads until the peer closes or resets the connection; returns false if it does neither in
    /// time.
    pub fn is_at_end(&mut self) -> bool {
        let end = io::copy(&mut self.reader, &mut io::sink()).err();
        end.is_none_or(|error| error.kind() == io::ErrorKind::ConnectionReset)
    }

    fn next_message(&mut self, method: &str) -> io::Result<Message> {
        Message::read_response(&mut self.reader, method)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "closed without a response")
        })
    }
}

/// Header lines of a WebSocket handshake (RFC 6455 §4.1).
pub const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
                             Sec-WebSocket-Version: 13\r\n\
                             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Header lines of the response that completes it.
pub const COMPLETION: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
                              Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

/// Returns the head of a request with a token, and these header lines with their ends.
pub fn head_with_token(method: &str, target: &str, token: &str, lines: &str) -> Vec<u8> {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n");
    format!("{head}Authorization: Bearer {token}\r\n{lines}\r\n").into_bytes()
}

/// Sends one request on a new connection.
///
/// # Panics
/// When there is no response.
pub fn exchange(address: SocketAddr, method: &str, request: &[u8]) -> Message {
    let mut client = RawClient::connect(address);
    client.send(request);
    client.response(method)
}
