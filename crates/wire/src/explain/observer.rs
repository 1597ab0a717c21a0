//! Observers of a decision: [`Unobserved`] on the hot path, a recorder for `explain`.
//!
//! The decision is the same with and without an observer. It only receives each step, and costs
//! nothing where it is [`Unobserved`].

use std::fmt::Display;

use crate::rejection::Rejection;

/// A receiver of each step, in order.
pub trait Observer {
    /// False where nothing is recorded: cached results may then replace the steps.
    const WATCHES: bool;

    /// Records a check. No check follows a failed one.
    fn checked(&mut self, check: &'static str, outcome: Result<(), Rejection>);

    /// Records a check that is left out, with the reason.
    fn skipped(&mut self, check: &'static str, why: &'static str);

    /// Records a fact under a label.
    fn learned(&mut self, label: &'static str, fact: impl Display);

    /// Records the cause of a rejection, which `detail` finds only where it is recorded.
    fn explains<T>(
        &mut self,
        outcome: &Result<T, Rejection>,
        detail: impl FnOnce(Rejection) -> Option<String>,
    ) {
        if Self::WATCHES
            && let Err(rejection) = outcome
            && let Some(detail) = detail(*rejection)
        {
            self.learned("found", detail);
        }
    }

    /// Records a check and returns its outcome.
    ///
    /// # Errors
    /// The error of the outcome.
    fn check<T>(
        &mut self,
        check: &'static str,
        outcome: Result<T, Rejection>,
    ) -> Result<T, Rejection> {
        let verdict = match &outcome {
            Ok(_) => Ok(()),
            Err(rejection) => Err(*rejection),
        };
        self.checked(check, verdict);
        outcome
    }
}

/// The observer that records nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unobserved;

impl Observer for Unobserved {
    const WATCHES: bool = false;

    fn checked(&mut self, _check: &'static str, _outcome: Result<(), Rejection>) {}

    fn skipped(&mut self, _check: &'static str, _why: &'static str) {}

    fn learned(&mut self, _label: &'static str, _fact: impl Display) {}
}
