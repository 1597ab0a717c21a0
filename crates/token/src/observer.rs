//! Observers of a decision: [`Unobserved`] on the hot path, a recorder for `explain`.
//!
//! The decision is the same with and without an observer. It only receives each step, and costs
//! nothing where it is [`Unobserved`].

use std::fmt::Display;

/// A receiver of each step, in order.
pub trait Observer {
    /// False where nothing is recorded: cached results may then replace the steps.
    const WATCHES: bool;

    /// Records a check. The last failed one has the reason of the decision.
    fn checked(&mut self, check: &'static str, passed: bool);

    /// Records a check that is left out, with the reason.
    fn skipped(&mut self, check: &'static str, why: &'static str);

    /// Records a fact under a label.
    fn learned(&mut self, label: &'static str, fact: impl Display);

    /// Records the cause of a rejection, which `detail` finds only where it is recorded.
    fn explains<T, E: Copy>(
        &mut self,
        outcome: &Result<T, E>,
        detail: impl FnOnce(E) -> Option<String>,
    ) {
        if Self::WATCHES
            && let Err(error) = outcome
            && let Some(detail) = detail(*error)
        {
            self.learned("found", detail);
        }
    }

    /// Records a check and returns its outcome.
    ///
    /// # Errors
    /// The error of the outcome.
    fn check<T, E>(&mut self, check: &'static str, outcome: Result<T, E>) -> Result<T, E> {
        self.checked(check, outcome.is_ok());
        outcome
    }
}

/// The observer that records nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unobserved;

impl Observer for Unobserved {
    const WATCHES: bool = false;

    fn checked(&mut self, _check: &'static str, _passed: bool) {}

    fn skipped(&mut self, _check: &'static str, _why: &'static str) {}

    fn learned(&mut self, _label: &'static str, _fact: impl Display) {}
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Display;

    use super::Observer;

    /// The facts under their labels.
    #[derive(Default)]
    pub(crate) struct Facts(pub(crate) BTreeMap<&'static str, String>);

    impl Observer for Facts {
        const WATCHES: bool = true;

        fn checked(&mut self, _check: &'static str, _passed: bool) {}

        fn skipped(&mut self, _check: &'static str, _why: &'static str) {}

        fn learned(&mut self, label: &'static str, fact: impl Display) {
            self.0.insert(label, fact.to_string());
        }
    }
}
