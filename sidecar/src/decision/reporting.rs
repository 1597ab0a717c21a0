//! Report-only mode: requests that would be rejected are forwarded, until a time.

use super::decided::{Decision, Rejected};
use super::forward::Forward;
use super::policy::AuthPolicy;
use postern_http::request::kind::RequestKind;
use postern_http::request::received::ReceivedHead;

/// The header with the reason code of a reported request.
pub(crate) const WOULD_REJECT: &str = "Postern-Would-Reject";

impl AuthPolicy {
    /// Returns the end of report-only mode if it is on at `now`, in seconds since the epoch.
    pub(crate) fn report_only_until(&self, now: i64) -> Option<i64> {
        self.reporting_until.filter(|until| now < *until)
    }

    /// Returns the end of report-only mode if it is configured and over at `now`, in seconds since
    /// the epoch.
    pub(crate) fn report_only_ended_at(&self, now: i64) -> Option<i64> {
        self.reporting_until.filter(|until| *until <= now)
    }

    /// Forwards a rejected request if report-only mode is on at `now`. A user goes along only if
    /// the token was verified, and a rule rejected it.
    ///
    /// # Errors
    /// The rejection, if report-only mode does not cover it.
    pub(crate) fn forward_if_reporting(
        &self,
        rejected: Rejected,
        request: &ReceivedHead,
        now: i64,
    ) -> Result<Decision, Rejected> {
        if self.report_only_until(now).is_none() || !rejected.rejection.is_about_authorization() {
            return Err(rejected);
        }
        let target = request.checked_target()?;
        // A tunnel needs a verified token even now: nothing else authenticates its bytes.
        let opens_tunnel = request.kind == RequestKind::WebSocket;
        let may_open_tunnel = rejected.verified.is_some() && self.carries_websockets;
        if self.interceptor.is_user_details(target.path()) || (opens_tunnel && !may_open_tunnel) {
            return Err(rejected);
        }
        Ok(Decision::Forward(Forward {
            reported: Some(rejected.rejection),
            ..self.forward(rejected.verified, request.kind, &target)
        }))
    }
}
