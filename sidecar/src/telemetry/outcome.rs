//! Outcome of a request, in the access log and in metrics.

use std::time::Duration;

use postern_contract::rejection::Rejection;

/// Outcome of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Forwarded with a verified user.
    Verified,
    /// Forwarded without a user, on a public path.
    Passed,
    /// Responded to by the sidecar, with the current user.
    Responded,
    /// Forwarded in report-only mode, although it would be rejected for this reason.
    Reported(Rejection),
    /// Rejected before it was forwarded, or failed because the service failed, even within its
    /// response.
    Rejected(Rejection),
    /// Ended by the client before the response was complete.
    Aborted,
}

impl Outcome {
    pub(crate) const REPORTED: &'static str = "reported";

    /// Returns the word in log lines and metric labels.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Passed => "passed",
            Self::Responded => "responded",
            Self::Reported(_) => Self::REPORTED,
            Self::Rejected(_) => "rejected",
            Self::Aborted => "aborted",
        }
    }

    /// Returns the rejection, also one that is only reported.
    pub(crate) const fn rejection(self) -> Option<Rejection> {
        match self {
            Self::Rejected(rejection) | Self::Reported(rejection) => Some(rejection),
            _ => None,
        }
    }

    /// Returns the reason code of [`Self::rejection`].
    pub(crate) fn reason(self) -> Option<&'static str> {
        self.rejection().map(Rejection::reason)
    }

    /// Returns the error of a request's span; `None` for a rejection that is the client's fault.
    pub(crate) fn error(self, status: Option<u16>) -> Option<&'static str> {
        match (self, status) {
            (Self::Rejected(rejection), _) if rejection.status().is_server_error() => {
                Some(rejection.reason())
            }
            (Self::Rejected(_), _) => None,
            (Self::Aborted, _) => Some("aborted"),
            (_, Some(500..)) => Some("5xx"),
            _ => None,
        }
    }
}

/// The end of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) outcome: Outcome,
    /// Status of the response, if one was sent.
    pub(crate) status: Option<u16>,
    /// The time from the head to the end; `None` for a request that could not be parsed.
    pub(crate) duration: Option<Duration>,
    /// True if the rejection was counted and logged before, without the request's path.
    pub(crate) was_counted: bool,
}
