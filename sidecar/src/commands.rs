//! Commands beside `serve`: they query a running sidecar, read the configuration, or put sidecars
//! into Kubernetes manifests.

pub(crate) mod check;
pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod inject;
pub(crate) mod lint;
pub(crate) mod suggest;
pub(crate) mod wait;
pub(crate) mod webhook;
