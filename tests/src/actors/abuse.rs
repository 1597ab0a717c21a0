//! Clients that leave responses unread, or announce bytes that never come. Each holds its
//! connection while the value lives.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};

use crate::wire::h2_frames::{FrameClient, get_fields};
use crate::wire::raw_client::HANDSHAKE;

/// RFC 9113 §6.9.1.
pub const LARGEST_WINDOW: u32 = 0x7fff_ffff;
/// Initial window of a connection (RFC 9113 §6.9.2).
const FIRST_WINDOW: u32 = 65_535;

/// Stream limit of the sidecar for each connection.
pub const STREAMS: u32 = 100;

/// A way to hold resources that other clients need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abuse {
    /// HEAD requests in a row, until the server stops reading.
    UnreadHeads,
    /// One request over HTTP/1.1.
    UnreadDownload,
    /// A hundred requests over HTTP/2, with windows large enough to send each response at once.
    UnreadStreams,
    /// Half of the preface of HTTP/2 (RFC 9113 §3.4).
    HalfPreface,
    /// A request and one byte of the next, then a close.
    ByteTooMany,
    /// A WebSocket handshake that announces a body.
    HandshakeWithBody,
}

impl Abuse {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::UnreadHeads,
        Self::UnreadDownload,
        Self::UnreadStreams,
        Self::HalfPreface,
        Self::ByteTooMany,
        Self::HandshakeWithBody,
    ];

    /// Starts the abuse; an empty `bearer` means no token. Returns `None` where no connection stays
    /// open.
    ///
    /// # Errors
    /// When no connection can be made.
    pub fn begin(
        self,
        address: SocketAddr,
        path: &str,
        bearer: &str,
    ) -> std::io::Result<Option<TcpStream>> {
        let mut socket = TcpStream::connect(address)?;
        let head = |method: &str, more: &str| {
            let token = match bearer {
                "" => String::new(),
                bearer => format!("Authorization: Bearer {bearer}\r\n"),
            };
            format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{token}{more}\r\n").into_bytes()
        };
        match self {
            Self::UnreadHeads => fill(&mut socket, &head("HEAD", ""))?,
            Self::UnreadDownload => socket.write_all(&head("GET", ""))?,
            Self::UnreadStreams => {
                let mut client = FrameClient::on(socket);
                unread_streams(&mut client, path, bearer);
                return Ok(Some(client.into_socket()));
            }
            Self::HalfPreface => socket.write_all(b"PRI * HTTP/2.0\r\n")?,
            Self::ByteTooMany => {
                socket.write_all(&head("GET", ""))?;
                socket.write_all(b"G")?;
                return Ok(None);
            }
            Self::HandshakeWithBody => {
                let lines = format!("{HANDSHAKE}Content-Length: 5\r\n");
                socket.write_all(&head("GET", &lines))?;
            }
        }
        Ok(Some(socket))
    }
}

/// Opens a hundred streams, with windows large enough to send all responses at once.
pub fn unread_streams(client: &mut FrameClient, path: &str, bearer: &str) {
    client.initial_window(LARGEST_WINDOW);
    client.window_update(0, LARGEST_WINDOW - FIRST_WINDOW);
    let authorization = format!("Bearer {bearer}");
    let mut fields = get_fields(path);
    if !bearer.is_empty() {
        fields.push(("authorization", &authorization));
    }
    for number in 0..STREAMS {
        client.head(2 * number + 1, &fields, true);
    }
}

/// Writes the same bytes until the server reads no more of them.
///
/// # Errors
/// The socket cannot be set up.
pub fn fill(socket: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    socket.set_nonblocking(true)?;
    let many = bytes.repeat(200);
    let mut pause = 0;
    while pause < 20 {
        match socket.write(&many) {
            Ok(_) => pause = 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                pause += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            // The server has stopped reading.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}
