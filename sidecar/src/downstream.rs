//! The clients' connections, in each version of HTTP.

pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod transport;

/// The beginning of every connection of HTTP/2 (RFC 9113 §3.4), and of no request of HTTP/1.1.
pub(crate) const HTTP_2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
