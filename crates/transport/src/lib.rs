//! Bytes between this process and its peers: listeners and their limits, TLS, ports that speak HTTP,
//! the admin port, the export of spans.
//!
//! Never here: what a token is worth, the contract's bodies, routes other than the admin port's.

pub mod admin;
pub mod http_port;
pub mod net;
pub mod tls;
pub mod traces;
