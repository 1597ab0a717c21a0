//! A request of a client as it came: its head, its target, its kind, and what two parsers could
//! read differently in it.

pub(crate) mod head;
pub(crate) mod header_list;
mod http1;
pub(crate) mod http2;
pub(crate) mod kind;
mod target;
