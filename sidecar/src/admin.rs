//! Routes of the admin port: the status page, explanations, the drain, the service's probes.

pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod probes;
pub(crate) mod status;
mod suggest;
