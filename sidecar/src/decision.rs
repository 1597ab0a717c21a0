//! The decision about a request, CSRF protection, and the removal of tokens from what is forwarded.

pub(crate) mod authorize;
mod csrf;
pub(crate) mod issuers;
pub(crate) mod protected_resource;
pub(crate) mod reporting;
pub(crate) mod strip_token;
