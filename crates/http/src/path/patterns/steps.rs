//! A bound on the work of comparing one path with a list of patterns.

use std::cell::Cell;

/// Honest paths take some hundred, and tens of thousands with hundreds of patterns that begin with
/// wildcards.
const MAX_STEPS: usize = 250_000;

/// The steps that are left; `None` once they were too few.
#[derive(Debug)]
pub(super) struct Steps(Cell<Option<usize>>);

impl Default for Steps {
    fn default() -> Self {
        Self(Cell::new(Some(MAX_STEPS)))
    }
}

impl Steps {
    /// Takes so many; returns false, now and from then on, if fewer are left.
    pub(super) fn take(&self, steps: usize) -> bool {
        let left = self.0.get().and_then(|left| left.checked_sub(steps));
        self.0.set(left);
        left.is_some()
    }
}
