//! How a request ended: what the access log and the metrics tell apart.

use contract::rejection::Rejection;
use serde::Serialize;

/// One of these per request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Forwarded with a verified user.
    Verified,
    /// Forwarded from a pass-listed path.
    Passed,
    /// Answered here with the current user.
    Responded,
    /// Refused here, before the service saw it, or failed because the service did, be it in the
    /// middle of its answer.
    Rejected(Rejection),
    /// The client went away before its answer was complete.
    Aborted,
}

impl Outcome {
    /// The word in log lines and metric labels.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Passed => "passed",
            Self::Responded => "answered",
            Self::Rejected(_) => "refused",
            Self::Aborted => "aborted",
        }
    }

    /// The reason code of a refusal.
    pub(crate) const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Rejected(rejection) => Some(rejection.reason()),
            _ => None,
        }
    }
}

/// How many requests ended in which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Totals {
    pub(crate) verified: u64,
    pub(crate) passed: u64,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    pub(crate) aborted: u64,
}

impl Totals {
    /// What came on top of `before`.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self {
            verified: self.verified.saturating_sub(before.verified),
            passed: self.passed.saturating_sub(before.passed),
            answered: self.answered.saturating_sub(before.answered),
            refused: self.refused.saturating_sub(before.refused),
            aborted: self.aborted.saturating_sub(before.aborted),
        }
    }

    pub(crate) const fn sum(self) -> u64 {
        self.verified + self.passed + self.answered + self.refused + self.aborted
    }
}
