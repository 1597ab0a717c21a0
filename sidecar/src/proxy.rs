//! The proxy: what its requests share, connections, and the sidecar's own responses.

pub(crate) mod auth_proxy;
pub(crate) mod connections;
pub(crate) mod decision;
pub(crate) mod fast_path;
pub(crate) mod response;
