//! Messages as they arrive, read strictly and piece by piece.

mod http1;
mod http2;

use std::fmt;

pub(super) use self::http1::Http1Reader;
pub(super) use self::http2::Http2Reader;
use super::script::Need;
use crate::wire::hpack::Field;

/// A head: a request line or a status, and its fields with names in lower case.
#[derive(Debug, Clone, Default)]
pub(super) struct Head {
    pub(super) line: String,
    pub(super) status: u16,
    pub(super) fields: Vec<Field>,
}

impl Head {
    pub(super) fn values(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(field, _)| field == name);
        named.map(|(_, value)| &**value).collect()
    }

    fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }
}

/// The end of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    /// A stream was reset with this code.
    Reset(u32),
    /// The connection ended within the message, or before it; true if in order.
    Cut(bool),
    /// The bytes are no such message.
    Malformed(String),
}

/// One message.
#[derive(Clone, Default)]
pub(super) struct Reading {
    pub(super) heads: Vec<Head>,
    pub(super) data: Vec<u8>,
    /// Trailers of HTTP/2.
    pub(super) trailers: Vec<Field>,
    pub(super) end: Option<End>,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.heads.iter().map(|head| &head.line).collect();
        let data = String::from_utf8_lossy(&self.data);
        write!(
            f,
            "{lines:?} {:.60} ({}) {:?}",
            data,
            self.data.len(),
            self.end
        )
    }
}

impl Reading {
    /// Returns the final head.
    pub(super) fn head(&self) -> Option<&Head> {
        self.heads.last().filter(|head| !head.is_interim())
    }

    pub(super) fn is_whole(&self) -> bool {
        self.end == Some(End::Whole)
    }

    pub(super) fn has(&self, need: Need) -> bool {
        self.heads.len() >= need.heads
            && self.data.len() >= need.data
            && (!need.end || self.end.is_some())
    }
}

/// A reader of the messages of one connection.
pub(super) trait Reader: Send + Sync {
    /// Takes bytes of the connection.
    fn take(&mut self, bytes: &[u8]);
    /// Takes the end of the connection; `in_order` unless it was reset.
    fn close(&mut self, in_order: bool);
    /// The present message.
    fn reading(&self) -> &Reading;
    /// The number of bytes that count for a cut of what is received.
    fn received(&self) -> usize;
    /// Returns true once the other side wants no more of the present stream.
    fn is_left(&self) -> bool {
        false
    }
    /// Takes the streams that have begun beside the present one.
    fn take_others(&mut self) -> Vec<u32> {
        Vec::new()
    }
}
