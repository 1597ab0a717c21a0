//! The verification keys: what is trusted now, where it comes from, when it is fetched again.

mod answer;
pub(crate) mod current;
mod early;
mod jwks;
mod link;
pub(crate) mod refresh;
pub(crate) mod source;
mod transport;
