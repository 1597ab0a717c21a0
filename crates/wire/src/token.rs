//! Access tokens: their place in a request, their claims, their verification.

pub mod bearer;
pub mod claim_mapping;
pub mod claim_name;
pub mod claims;
pub mod cookie;
pub mod detail;
pub mod revocations;
pub mod sources;
pub mod verifier;
