//! The contract between the auth server and the sidecar.
//!
//! Pure: no runtime, no sockets, no clock, no environment. Time and randomness are arguments, so
//! tests never wait.

pub mod api;
pub mod explain;
pub mod folding;
pub mod http;
pub mod interceptor;
pub mod keys;
pub mod rejection;
pub mod rules;
pub mod settings;
pub mod strict_json;
pub mod token;

#[cfg(test)]
mod tests;
