//! Headers by which the service learns of the user and of the client.

pub(crate) mod ascii_json;
pub(crate) mod claim_text;
pub(crate) mod field_name;
pub(crate) mod forwarded;
pub(crate) mod identity;
