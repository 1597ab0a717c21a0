//! One memory budget for incomplete requests, heads and bodies: any client may send them, and they
//! must not exhaust the memory. Clients share it.
//!
//! Ordinary requests take nothing of it, and are served even when it is full.

use super::shares::{Holder, Share, Shares};
use crate::process::memory_limit::memory_limit;

/// Share of the memory limit; the rest is for connections and password checks.
const PART: u64 = 8;
/// Max budget, and the budget without a memory limit.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Min budget: some hundred clients with slow lines.
const MIN_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of each connection that are not counted, because `--max-connections` bounds them: a head
/// of 1 KiB, held twice, or a body of 2 KiB, in buffers that grow by doubling.
pub const UNCOUNTED: usize = 4 * 1024;

/// Clones share the budget.
#[derive(Debug, Clone)]
pub struct Unfinished(Shares);

/// Bytes that one request takes of the budget, given back at the end.
#[derive(Debug)]
pub struct Held(Share);

/// Other requests take all of the budget, or of the client's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

impl Unfinished {
    /// Makes a budget that suits what this process may take.
    pub fn for_this_process() -> Self {
        let part = memory_limit().and_then(|limit| usize::try_from(limit / PART).ok());
        Self::of(part.map_or(MAX_BYTES, |part| part.clamp(MIN_BYTES, MAX_BYTES)))
    }

    /// Makes a budget of so many bytes.
    pub fn of(bytes: usize) -> Self {
        Self(Shares::of(bytes))
    }

    /// Returns the bytes that are not taken.
    pub fn left(&self) -> usize {
        self.0.free()
    }

    /// Returns an empty part of a client, which may grow.
    pub fn nothing_held(&self, client: Holder) -> Held {
        Held(self.0.nothing_for(client))
    }
}

impl Held {
    /// Takes or gives back the difference to `bytes`, of which the first [`UNCOUNTED`] are free.
    ///
    /// # Errors
    /// [`Exhausted`] if less is left; the bytes held so far stay held.
    pub fn set(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let is_set = self.0.set(bytes.saturating_sub(UNCOUNTED));
        is_set.then_some(()).ok_or(Exhausted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(budget: &Unfinished, client: u8) -> Held {
        budget.nothing_held(Holder::at(Some([192, 0, 2, client].into())))
    }

    #[test]
    fn an_ordinary_request_needs_nothing_of_the_budget() {
        let budget = Unfinished::of(100);
        let (mut slow, mut newcomer) = (held(&budget, 1), held(&budget, 2));
        assert_eq!(slow.set(UNCOUNTED + 100), Ok(()));
        assert_eq!(newcomer.set(UNCOUNTED), Ok(()));
        assert_eq!(newcomer.set(UNCOUNTED + 1), Err(Exhausted));
    }
}
