//! A request as it was received: its head, target and kind, and the checks against ambiguity.

pub(crate) mod head;
pub(crate) mod header_list;
mod http1;
pub(crate) mod http2;
pub(crate) mod kind;
pub(crate) mod received;
pub(crate) mod target;
