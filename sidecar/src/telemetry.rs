//! Metrics, access log, request ids, and the outcome of a request.

pub(crate) mod access_log;
pub(crate) mod metrics;
pub(crate) mod outcome;
pub(crate) mod reported_paths;
pub(crate) mod request_id;
pub(crate) mod request_log;
