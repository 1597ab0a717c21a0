//! Requests on their way: the phases of each, the end of each, and the responses of our own.

pub(crate) mod connections;
pub(crate) mod phases;
mod response;
mod stream_deadline;
mod timed_requests;
