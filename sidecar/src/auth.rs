//! The decision about a request, and the removal of the token that it came with.

pub(crate) mod authorize;
mod csrf;
pub(crate) mod strip_token;
