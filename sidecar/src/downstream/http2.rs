//! HTTP/2 of clients, by `h2`: each stream is a request of its own.

mod body;
mod connection;
mod downstream;
mod frames;
mod transport;
mod unsent;

pub(crate) use self::connection::{NewConnection, serve};
