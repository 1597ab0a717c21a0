//! Metrics and audit events.

pub(crate) mod audit;
pub(crate) mod metrics;
