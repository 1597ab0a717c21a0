//! A request as it was received: its head, target and kind, and the checks against ambiguity.

pub(crate) mod head;
pub(crate) mod header_list;
pub(crate) mod hop_by_hop;
mod http1;
pub(crate) mod http2;
pub(crate) mod kind;
pub(crate) mod received;
pub(crate) mod target;

/// Limit of a head in bytes: several times the limit of browsers and common servers.
pub(crate) const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Limit of its fields.
pub(crate) const MAX_HEAD_LINES: usize = 256;
