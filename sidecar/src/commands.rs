//! Commands beside `serve`: each asks a running sidecar, or reads the configuration.

pub(crate) mod check;
pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod wait;
