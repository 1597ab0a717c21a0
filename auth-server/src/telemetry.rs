//! What operators see: metrics, audit events.

pub(crate) mod audit;
pub(crate) mod metrics;
