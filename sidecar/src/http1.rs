//! HTTP/1.x of clients: the requests of a connection, one after the other.

mod connection;
mod downstream;
pub(crate) mod transport;

pub(crate) use self::connection::serve;
pub(crate) use self::downstream::Http1Downstream;

/// The begin of every connection of HTTP/2 (RFC 9113 §3.4), and of no request of HTTP/1.1.
pub(crate) const HTTP_2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
