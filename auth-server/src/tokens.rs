//! Access tokens.

pub(crate) mod dev_claims;
pub(crate) mod issuer;
pub(crate) mod revocation_list;
