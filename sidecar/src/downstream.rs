//! Connections of clients: their bytes, their TLS, and how many, how large and how slow they may be.

pub(crate) mod head_limits;
pub(crate) mod limits;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod transport;
pub(crate) mod unsent;
