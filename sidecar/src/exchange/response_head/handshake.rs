//! The handshake of a WebSocket, and the response that completes it (RFC 6455 §4.2.2).

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Parsed;

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// A digest of 20 bytes in base64.
const ACCEPT_BYTES: usize = 28;

/// The handshake of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handshake {
    /// The proof that the service has read the key as one of a WebSocket.
    accept: [u8; ACCEPT_BYTES],
    /// True if the client offered the protocol `bearer` with its token.
    pub(crate) offers_token: bool,
}

impl Handshake {
    /// Creates the handshake with the client's `key`.
    pub(crate) fn new(key: &[u8], offers_token: bool) -> Self {
        let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        digest.update(key);
        digest.update(GUID);
        let mut accept = [0; ACCEPT_BYTES];
        // The array has the length of a digest in base64: the encoding cannot fail.
        let _ = STANDARD.encode_slice(digest.finish(), &mut accept);
        Self {
            accept,
            offers_token,
        }
    }

    /// Returns true if the service speaks WebSocket from here on; after any other 101 it may go on with
    /// HTTP, and take the client's bytes for a request of ours.
    pub(crate) fn is_completed_by(&self, head: &Parsed<'_>) -> bool {
        match only_value(head.values("upgrade")) {
            Some(protocol) if protocol.eq_ignore_ascii_case(b"websocket") => {
                only_value(head.values("sec-websocket-accept")) == Some(&self.accept)
            }
            _ => false,
        }
    }
}

fn only_value<'h>(mut values: impl Iterator<Item = &'h [u8]>) -> Option<&'h [u8]> {
    match (values.next(), values.next()) {
        (value, None) => value,
        // The client may read the other one.
        (_, Some(_)) => None,
    }
}
