//! A request as it was received: its head, target and kind, and the checks against ambiguity.

pub mod head;
pub mod header_list;
pub mod hop_by_hop;
mod http1;
pub mod http2;
pub mod kind;
pub mod received;
pub mod target;

/// Limit of a head in bytes: several times the limit of browsers and common servers.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Limit of its fields.
pub const MAX_HEAD_LINES: usize = 256;
