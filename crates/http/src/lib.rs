//! Requests before their token: framing, bodies, host, target, methods, origins, paths and patterns.
//!
//! Pure: no sockets, no clock, no environment. Never here: tokens, users, what a rejection looks like.

pub mod cors;
pub mod folding;
pub mod form;
pub mod framing;
pub mod header_alias;
pub mod host;
pub mod invalid;
pub mod methods;
pub mod only_field;
pub mod pasted;
pub mod path;
pub mod request;
pub mod text_encoding;
pub mod trace;
