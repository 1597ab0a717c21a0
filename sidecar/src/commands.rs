//! Commands beside `serve`: they query a running sidecar or read the configuration.

pub(crate) mod check;
pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod wait;
