//! Bytes between this process and its peers: listeners and their limits, TLS, ports that speak HTTP,
//! their drain, the admin port, one HTTP client, the fetch of an issuer's keys, the export of spans.
//!
//! Never here: what a token is worth, the contract's bodies, routes other than the admin port's.

pub mod admin;
pub mod drain;
pub mod http_client;
pub mod http_port;
pub mod issuer;
pub mod net;
pub mod tls;
pub mod traces;
