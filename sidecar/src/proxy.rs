//! The proxy: what requests share, their exchange, and the sidecar's own responses.

pub(crate) mod auth_proxy;
mod decision;
pub(crate) mod fast_path;
pub(crate) mod response;
