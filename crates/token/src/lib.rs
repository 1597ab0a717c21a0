//! Access tokens: their place in a request, keys, verification, claims and the user that they name,
//! proofs of possession, revocations.
//!
//! Pure: time and randomness are arguments, so tests never wait. Never here: sockets, clocks, paths,
//! rules.

pub mod claims;
mod compact;
pub mod digest;
pub mod invalid;
pub mod keys;
pub mod observer;
pub mod policy;
pub mod possession;
pub mod revocations;
pub mod sources;
pub mod strict_json;
pub mod times;
pub mod unverified;
pub mod verifier;
