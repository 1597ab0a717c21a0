//! Access tokens.

pub(crate) mod issuer;
pub(crate) mod revocation_list;
