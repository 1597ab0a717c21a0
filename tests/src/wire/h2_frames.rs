//! A client that writes raw frames of HTTP/2, also those that a library would not send.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::wait::TIMEOUT;

/// A client that writes raw frames, also those that a library would not send.
#[derive(Debug)]
pub struct FrameClient(TcpStream);

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// RFC 9113 §6: 0 DATA, 1 HEADERS, 3 RST_STREAM, 4 SETTINGS, 7 GOAWAY.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 for the connection.
    pub stream: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Reads the next frame; returns `None` at the end of a connection.
    pub fn read(connection: &mut impl Read) -> Option<Self> {
        let mut head = [0; 9];
        connection.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).ok()?];
        connection.read_exact(&mut payload).ok()?;
        Some(Self {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff,
            payload,
        })
    }

    /// Returns true for DATA that ends its stream.
    pub const fn ends_body(&self) -> bool {
        self.kind == 0 && self.flags & 1 == 1
    }
}

/// The end of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// A response, with its body.
    Response(String),
    /// A reset by the server.
    Reset,
    /// A closed connection.
    Closed,
}

impl FrameClient {
    /// Connects, sends the preface and empty settings.
    ///
    /// # Panics
    /// When the address accepts no connection.
    pub fn connect(address: SocketAddr) -> Self {
        Self::on(TcpStream::connect(address).expect("a connection"))
    }

    /// Sends the preface and empty settings on a connection.
    ///
    /// # Panics
    /// When it accepts no timeouts.
    pub fn on(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(TIMEOUT)).expect("a deadline");
        socket.set_write_timeout(Some(TIMEOUT)).expect("a deadline");
        let mut client = Self(socket);
        client.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.frame(4, 0, 0, &[]);
        client
    }

    /// Returns the connection.
    pub const fn socket(&self) -> &TcpStream {
        &self.0
    }

    /// Returns the connection, for a client that stops reading.
    pub fn into_socket(self) -> TcpStream {
        self.0
    }

    /// Writes bytes; an error is ignored because the server may have closed the connection.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// Writes one frame.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.raw(&frame_of(kind, flags, stream, payload));
    }

    /// Writes a whole request head; `end` means that no body follows.
    pub fn head(&mut self, stream: u32, fields: &[(&str, &str)], end: bool) {
        let flags = 0x4 | u8::from(end);
        self.frame(1, flags, stream, &header_block(fields));
    }

    /// Changes the window of every stream to `bytes` (RFC 9113 §6.9.2).
    pub fn initial_window(&mut self, bytes: u32) {
        let setting = [&[0, 4][..], &bytes.to_be_bytes()].concat();
        self.frame(4, 0, 0, &setting);
    }

    /// Increases the window of a stream by `bytes`; stream 0 is the connection.
    pub fn window_update(&mut self, stream: u32, bytes: u32) {
        self.frame(8, 0, stream, &bytes.to_be_bytes());
    }

    /// Reads until the server has acknowledged this many settings; returns how many bodies ended.
    ///
    /// # Panics
    /// When the server closes before.
    pub fn read_acknowledged(&mut self, settings: usize) -> usize {
        let (mut acknowledged, mut ended) = (0, 0);
        while acknowledged < settings {
            let frame = self.frame_from_server().expect("an open connection");
            acknowledged += usize::from(frame.kind == 4 && frame.flags & 1 == 1);
            ended += usize::from(frame.ends_body());
        }
        ended
    }

    /// Reads the next frame; returns `None` when the server has closed.
    pub fn frame_from_server(&mut self) -> Option<Frame> {
        Frame::read(&mut self.0)
    }

    /// Reads until this stream ends and returns its end.
    pub fn fate(&mut self, stream: u32) -> Fate {
        let mut body = Vec::new();
        while let Some(frame) = self.frame_from_server() {
            match frame.kind {
                4 if frame.flags & 1 == 0 => self.frame(4, 1, 0, &[]),
                7 => return Fate::Closed,
                3 if frame.stream == stream => return Fate::Reset,
                0 if frame.stream == stream => body.extend_from_slice(&frame.payload),
                _ => {}
            }
            let ended = matches!(frame.kind, 0 | 1) && frame.flags & 1 == 1;
            if frame.stream == stream && ended {
                return Fate::Response(String::from_utf8_lossy(&body).into_owned());
            }
        }
        Fate::Closed
    }

    /// Reads the frames of one stream.
    pub fn frames_of(&mut self, stream: u32) -> impl Iterator<Item = Frame> {
        let frames = std::iter::from_fn(|| self.frame_from_server());
        frames.filter(move |frame| frame.stream == stream)
    }

    /// Reads until the server closes; returns false if it does not in time.
    pub fn is_closed(&mut self) -> bool {
        let end = std::io::copy(&mut self.0, &mut std::io::sink());
        end.err().is_none_or(|error| {
            let is_open = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
            !is_open.contains(&error.kind())
        })
    }
}

/// Returns a frame as bytes.
pub fn frame_of(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let length = length.to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// Returns the pseudo-header fields of a GET.
pub fn get_fields(path: &str) -> Vec<(&'static str, &str)> {
    fields_of("GET", path)
}

/// Returns the pseudo-header fields of a request.
pub fn fields_of<'f>(method: &'f str, path: &'f str) -> Vec<(&'static str, &'f str)> {
    vec![
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
    ]
}

/// Encodes HPACK literals only (RFC 7541 §6.2.2).
///
/// # Panics
/// When a name or value is longer than 16 KiB.
pub fn header_block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            string_length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Encodes a length with a prefix of seven bits (RFC 7541 §5.1).
fn string_length(block: &mut Vec<u8>, length: usize) {
    if let Ok(short @ 0..127) = u8::try_from(length) {
        block.push(short);
        return;
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).expect("seven bits") | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).expect("seven bits"));
}
