//! What the auth server and the sidecar agree on.
//!
//! Pure: no runtime, no sockets, no clock, no environment. Time and randomness come in as
//! arguments, so every decision here is tested without waiting for anything.

pub mod api;
pub mod explain;
pub mod http;
pub mod interceptor;
pub mod keys;
pub mod rejection;
pub mod token;

mod strict_json;
