//! Access tokens: their place in a request, keys, verification, claims and the user that they name,
//! revocations.
//!
//! Pure: time and randomness are arguments, so tests never wait. Never here: sockets, clocks, paths,
//! rules.

pub mod bearer;
pub mod claim_mapping;
pub mod claim_name;
pub mod claims;
pub mod cookie;
pub mod detail;
pub mod invalid;
pub mod keys;
pub mod observer;
pub mod revocations;
pub mod sources;
pub mod strict_json;
pub mod unverified;
pub mod user_details;
pub mod verifier;
