//! A client that writes the bytes it is given and reads the answer.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::message::Message;
use crate::wait::PATIENCE;

/// One connection.
#[derive(Debug)]
pub struct RawClient {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
}

impl RawClient {
    /// Connects; every read and write has the harness's deadline.
    ///
    /// # Panics
    /// When nothing listens there.
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap_or_else(|error| panic!("connect to {address}: {error}"))
    }

    /// As `connect`.
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let writer = TcpStream::connect(address)?;
        writer
            .set_read_timeout(Some(PATIENCE))
            .expect("a read deadline");
        writer
            .set_write_timeout(Some(PATIENCE))
            .expect("a write deadline");
        writer.set_nodelay(true).expect("no delay");
        let reader = BufReader::new(writer.try_clone().expect("a second handle"));
        Ok(Self { writer, reader })
    }

    /// Writes bytes. A peer that refuses early may close while we still write; its answer is what
    /// counts, so a failed write is no failure yet.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.writer.write_all(bytes);
    }

    /// The connection once more, for who writes beside us.
    ///
    /// # Panics
    /// When the system has no handle left.
    pub fn handle(&self) -> TcpStream {
        self.writer.try_clone().expect("another handle")
    }

    /// Says that no more bytes follow.
    pub fn finish(&self) {
        let _ = self.writer.shutdown(Shutdown::Write);
    }

    /// Reads the answer to a request with `method`, interim answers (1xx) left out.
    ///
    /// # Errors
    /// When the peer closes without one, or it does not come in time.
    pub fn try_answer(&mut self, method: &str) -> io::Result<Message> {
        loop {
            let answer = self.next_message(method)?;
            if !(100..200).contains(&answer.status()) || answer.status() == 101 {
                return Ok(answer);
            }
        }
    }

    /// As `try_answer`.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn answer(&mut self, method: &str) -> Message {
        self.try_answer(method)
            .unwrap_or_else(|error| panic!("no answer to {method}: {error}"))
    }

    /// So many bytes, whatever they are.
    ///
    /// # Panics
    /// When they do not come.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.reader
            .read_exact(&mut bytes)
            .unwrap_or_else(|error| panic!("{count} bytes: {error}"));
        bytes
    }

    /// Everything up to and with `end`.
    ///
    /// # Panics
    /// When it does not come.
    pub fn text_until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            bytes.extend(self.bytes(1));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads until the other side has closed, or broken off; false where it does neither in time.
    pub fn is_at_end(&mut self) -> bool {
        let mut sink = [0; 4096];
        loop {
            match self.reader.read(&mut sink) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }

    fn next_message(&mut self, method: &str) -> io::Result<Message> {
        Message::read_answer(&mut self.reader, method)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer"))
    }
}

/// One request on a connection of its own.
///
/// # Panics
/// When there is no answer.
pub fn exchange(address: SocketAddr, method: &str, request: &[u8]) -> Message {
    let mut client = RawClient::connect(address);
    client.send(request);
    client.answer(method)
}
