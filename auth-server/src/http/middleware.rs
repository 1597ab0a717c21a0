//! The layers around the routes.

pub(crate) mod access_log;
pub(crate) mod authenticate;
pub(crate) mod in_flight;
pub(crate) mod security_headers;
