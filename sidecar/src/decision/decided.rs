//! The result of a decision.

use std::sync::Arc;

use postern_contract::rejection::Rejection;
use postern_http::invalid::InvalidRequest;

use super::forward::Forward;
use crate::issuers::token_cache::VerifiedToken;

/// Decision about a request that is not rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Send it to the service.
    Forward(Forward),
    /// Respond with this body.
    Respond(Vec<u8>),
    /// Respond to the CORS preflight of the current-user endpoint.
    Preflight,
}

/// A rejected request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) rejection: Rejection,
    /// The place of the rule that does not hold.
    pub(crate) rule: Option<usize>,
    /// The verified token of a request that only a rule rejects.
    pub(crate) verified: Option<Arc<VerifiedToken>>,
}

impl From<InvalidRequest> for Rejected {
    fn from(invalid: InvalidRequest) -> Self {
        Rejection::from(invalid).into()
    }
}

impl From<Rejection> for Rejected {
    fn from(rejection: Rejection) -> Self {
        Self {
            rejection,
            rule: None,
            verified: None,
        }
    }
}
