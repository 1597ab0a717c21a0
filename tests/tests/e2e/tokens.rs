//! Tokens and keys: verification, issuers, rotation, revocation.

mod attack_tokens;
mod audience;
mod bound_tokens;
mod claim_headers;
mod current_user;
mod foreign_sessions;
mod invalid_keys;
mod issuers;
mod key_cache;
mod key_refresh;
mod real_issuers;
mod revocation;
mod revocation_gaps;
mod rotation;
mod secret_key;
pub(super) mod several_issuers;
mod signing_types;
mod unknown_keys;
