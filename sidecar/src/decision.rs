//! The decision about a request, proofs of possession, CSRF protection, and what is removed from a request that is forwarded.

pub(crate) mod after_fetch;
pub(crate) mod authorize;
mod csrf;
pub(crate) mod decided;
pub(crate) mod forward;
pub(crate) mod issuers;
pub(crate) mod policy;
pub(crate) mod possession;
pub(crate) mod protected_resource;
pub(crate) mod reporting;
mod resource_metadata;
pub(crate) mod strip_token;
