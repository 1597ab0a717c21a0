//! Headers by which the service learns of the user and of the client.

mod ascii_json;
mod claim_text;
mod field_name;
pub(crate) mod forwarded;
pub(crate) mod identity;
