//! What the auth server and the sidecar agree on.
//!
//! Pure: no runtime, no sockets, no clock, no environment. Time and randomness come in as
//! arguments, so every decision here is tested without waiting for anything.

pub mod algorithms;
pub mod bearer;
pub mod cgi_name;
pub mod claim_mapping;
pub mod claim_name;
pub mod claims;
pub mod cors;
pub mod decoded_token;
pub mod envelope;
pub mod explanation;
pub mod framing;
pub mod host;
pub mod interceptor;
pub mod keys;
pub mod login;
pub mod observer;
pub mod path_patterns;
pub mod rejection;
pub mod request_path;
pub mod signing_type;
pub mod trace;
pub mod user_details;
pub mod verifier;

mod strict_json;
