//! A request that may be forwarded: its user, and its way to the service.

use std::sync::Arc;

use postern_contract::rejection::Rejection;

use crate::decision::policy::AuthPolicy;
use crate::issuers::token_cache::VerifiedToken;
use crate::telemetry::outcome::Outcome;
use postern_http::request::kind::RequestKind;
use postern_http::request::received::ReceivedHead;
use postern_http::request::target::{OriginForm, Target};

/// A request that may be forwarded, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    /// The verified token; `None` on a public path.
    pub(crate) verified: Option<Arc<VerifiedToken>>,
    /// The target and the host to send, if they differ from the received ones.
    pub(crate) target: Option<OriginForm>,
    /// Only [`RequestKind::WebSocket`] may open a tunnel with a 101 of the service.
    pub(crate) kind: RequestKind,
    /// End of a stream, in seconds since the epoch; `None` for a token without expiry.
    pub(crate) ends_at: Option<i64>,
    /// The reason for which it would be rejected if report-only mode were off.
    pub(crate) reported: Option<Rejection>,
}

impl Forward {
    pub(crate) fn outcome(&self) -> Outcome {
        if let Some(rejection) = self.reported {
            Outcome::Reported(rejection)
        } else if self.verified.is_some() {
            Outcome::Verified
        } else {
            Outcome::Passed
        }
    }

    /// Returns true if the body is passed on as it comes, and may last: of a known client without a
    /// length, or of a call, which may need its response first.
    pub(crate) fn may_last(&self, head: &ReceivedHead, to_http_1: bool) -> bool {
        let is_known = self.verified.is_some();
        match head.kind {
            RequestKind::Grpc if is_known || !to_http_1 => true,
            _ => head.body.is_chunked() && is_known,
        }
    }

    /// Returns true if the service gets the request only once the body, or a long part of the body, is here:
    /// a slow client occupies none of the service's workers. A request with `Expect: 100-continue` goes on at
    /// once, unless the client has no verified token and the service speaks HTTP/1.
    pub(crate) fn is_held(&self, head: &ReceivedHead, to_http_1: bool) -> bool {
        let is_unknown = to_http_1 && self.verified.is_none();
        let is_needed = is_unknown || !head.expects_continue();
        head.has_body() && !self.may_last(head, to_http_1) && is_needed
    }
}

impl AuthPolicy {
    /// Describes how a request is forwarded, with the user of `verified` if there is one.
    pub(super) fn forward(
        &self,
        verified: Option<Arc<VerifiedToken>>,
        kind: RequestKind,
        target: &Target<'_>,
    ) -> Forward {
        Forward {
            // Without a token a claimed stream gets the timeouts of a plain request.
            kind: match verified {
                Some(_) => kind,
                None => RequestKind::Plain,
            },
            ends_at: match &verified {
                Some(token) => self.end(token),
                None => None,
            },
            verified,
            target: target.replacement.clone(),
            reported: None,
        }
    }

    /// Returns the end of a token, with the leeway of its issuer.
    fn end(&self, token: &VerifiedToken) -> Option<i64> {
        let leeway = self.issuers.policy(token.key_set)?.leeway_seconds;
        Some(token.validity.expires_at?.saturating_add(leeway.into()))
    }
}
