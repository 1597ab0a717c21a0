//! Outcome of a request, in the access log and in metrics.

use contract::rejection::Rejection;
use serde::Serialize;

/// Outcome of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Forwarded with a verified user.
    Verified,
    /// Forwarded without a user, on a public path.
    Passed,
    /// Responded to by the sidecar, with the current user.
    Responded,
    /// Rejected before it was forwarded, or failed because the service failed, even within its
    /// response.
    Rejected(Rejection),
    /// Ended by the client before the response was complete.
    Aborted,
}

impl Outcome {
    /// Returns the word in log lines and metric labels.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Passed => "passed",
            Self::Responded => "answered",
            Self::Rejected(_) => "refused",
            Self::Aborted => "aborted",
        }
    }

    /// Returns the reason code of a rejection.
    pub(crate) const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Rejected(rejection) => Some(rejection.reason()),
            _ => None,
        }
    }
}

/// Numbers of requests by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Totals {
    pub(crate) verified: u64,
    pub(crate) passed: u64,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    pub(crate) aborted: u64,
}

impl Totals {
    /// Returns the requests since `before`.
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
