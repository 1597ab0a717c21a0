//! Access tokens.

pub(crate) mod issuer;
