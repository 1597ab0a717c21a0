//! HTTP/1.x of clients: the requests of a connection, one after the other.

mod connection;
mod downstream;

pub(crate) use self::connection::serve;
pub(crate) use self::downstream::Http1Downstream;
