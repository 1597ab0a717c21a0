//! One route, one file.

pub(crate) mod current_user;
pub(crate) mod dev;
pub(crate) mod jwks;
pub(crate) mod login;
pub(crate) mod revocations;
pub(crate) mod revoke;
pub(crate) mod server_metadata;
pub(crate) mod static_files;
pub(crate) mod token;
pub(crate) mod verification_key;
