//! The verification keys: what is trusted now, where it comes from, when it is fetched again.

pub(crate) mod answer;
pub(crate) mod attempts;
pub(crate) mod cache;
pub(crate) mod contract_endpoint;
pub(crate) mod current;
mod early;
mod jwks;
pub(crate) mod jwks_url;
pub(crate) mod key_file;
mod link;
mod previous;
pub(crate) mod refresh;
pub(crate) mod schedule;
pub(crate) mod source;
pub(crate) mod tls;
mod transport;
