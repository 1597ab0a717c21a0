//! Connections of clients: bytes, TLS, and limits of their number.

pub(crate) mod in_flight;
pub(crate) mod limits;
pub(crate) mod transport;
