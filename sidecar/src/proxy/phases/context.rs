//! The state of one request between Pingora's phases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pingora::protocols::l4::socket::SocketAddr as ServiceAddress;
use runtime::net::shares::Share;

use crate::auth::authorize::Forward;
use crate::config::live::Rules;
use crate::downstream::stream::EndedResponses;
use crate::downstream::unsent::SharedPermit;
use crate::request::kind::RequestKind;
use crate::telemetry::metrics::Counted;
use crate::telemetry::outcome::Outcome;
use crate::telemetry::request_id::RequestIds;
use crate::upstream::Tries;

/// State of one request, passed from phase to phase.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// The rules at the begin of the request: a reload does not change them.
    pub(super) rules: Arc<Rules>,
    /// Set once the request is authorized: no other request reaches the service.
    pub(super) forward: Option<Forward>,
    /// Set once the request may be forwarded.
    pub(super) permit: Option<SharedPermit>,
    pub(super) outcome: Outcome,
    pub(super) tries: Tries,
    /// The upstream address of the last failure.
    pub(super) failed_at: Option<ServiceAddress>,
    pub(super) ids: RequestIds,
    pub(super) began: Instant,
    /// The time of the decision.
    pub(super) decided: Instant,
    /// Moves into the permit once there is one.
    pub(super) counted: Option<Counted>,
    /// Time of the service up to the head of its response.
    pub(super) upstream_duration: Option<Duration>,
}

impl RequestContext {
    /// Creates the state of a request that begins now.
    pub(super) fn new(rules: Arc<Rules>, counted: Counted) -> Self {
        let now = Instant::now();
        Self {
            rules,
            forward: None,
            permit: None,
            outcome: Outcome::Aborted,
            tries: Tries::default(),
            failed_at: None,
            ids: RequestIds::default(),
            began: now,
            decided: now,
            counted: Some(counted),
            upstream_duration: None,
        }
    }

    /// Keeps what an authorized request needs until its end.
    pub(super) fn forward(
        &mut self,
        forward: Forward,
        permit: Share,
        ended: Option<EndedResponses>,
    ) {
        self.outcome = forward.outcome();
        self.forward = Some(forward);
        self.permit = Some(SharedPermit::new(permit, self.counted.take(), ended));
    }

    pub(super) fn kind(&self) -> Option<RequestKind> {
        self.forward.as_ref().map(|forward| forward.kind)
    }
}
