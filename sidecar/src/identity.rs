//! The client, and the headers that carry its user and address to the service.

mod ascii_json;
mod claim_text;
pub(crate) mod client;
pub(crate) mod client_certificate;
pub(crate) mod field_name;
pub(crate) mod forwarded;
pub(crate) mod service_fields;
pub(crate) mod user_header;
