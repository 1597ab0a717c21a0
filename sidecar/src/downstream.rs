//! Connections of clients: bytes, TLS, and limits of number, size and time.

pub(crate) mod head_limits;
pub(crate) mod in_flight;
pub(crate) mod limits;
pub(crate) mod stream;
pub(crate) mod transport;
pub(crate) mod unsent;
