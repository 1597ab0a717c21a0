//! Routes of the admin port: the status page, explanations, the drain.

pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod status;
pub(crate) mod suggest;
