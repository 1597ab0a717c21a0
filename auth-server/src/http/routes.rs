//! One route, one file.

pub(crate) mod console;
pub(crate) mod current_user;
pub(crate) mod jwks;
pub(crate) mod login;
pub(crate) mod static_files;
pub(crate) mod verification_key;
