//! The proxy: Pingora's phases, connections, deadlines, and the sidecar's own responses.

pub(crate) mod connections;
pub(crate) mod fast_path;
pub(crate) mod phases;
mod response;
mod stream_deadline;
pub(crate) mod timed_requests;
