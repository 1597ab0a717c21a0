//! The contract between services, auth server and sidecar: bodies of the endpoints, the interceptor,
//! rules, and each rejection with its reason, status and remedy.
//!
//! Pure: no sockets, no clock, no environment.

pub mod envelope;
pub mod explanation;
pub mod interceptor;
pub mod login;
pub mod rejection;
pub mod rules;
pub mod settings;
