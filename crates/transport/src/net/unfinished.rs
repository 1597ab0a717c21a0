//! One memory budget, which clients share, for incomplete requests, heads and bodies: any client may send
//! them, and they must not exhaust the memory.
//!
//! Ordinary requests take nothing of the budget, and are served even when it is full.

use super::shares::Shares;
use postern_process::memory_limit::memory_limit;

/// The budget's part of the memory limit; the rest is for connections and password checks.
const PART: u64 = 8;
/// Max budget, and the budget without a memory limit.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Min budget: some hundred clients with slow lines.
const MIN_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of each connection that are not counted, because `--max-connections` bounds them: a head
/// of 1 KiB, held twice, or a body of 2 KiB, in buffers that grow by doubling.
const UNCOUNTED: usize = 4 * 1024;

/// Creates a budget of bytes that suits the memory limit of this process.
#[must_use]
pub fn budget() -> Shares {
    let bytes = match memory_limit() {
        Some(limit) => usize::try_from(limit / PART).unwrap_or(MAX_BYTES),
        None => MAX_BYTES,
    };
    Shares::new(bytes.clamp(MIN_BYTES, MAX_BYTES))
}

/// Returns the number of bytes of an incomplete request that count.
#[must_use]
pub const fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(UNCOUNTED)
}
