//! Bodies of requests and responses of the endpoints.

pub mod envelope;
pub mod form;
pub mod login;
pub mod user_details;
