//! Permits of HTTP/2 requests whose responses are not sent yet: `h2` queues response bytes past the
//! end of a request, and the permit is given back with the last of them.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use runtime::net::shares::Share;

use crate::downstream::stream::{EndedResponses, Generation};
use crate::telemetry::metrics::Counted;

/// Permit of one request, shared with the unsent part of its response.
#[derive(Debug)]
pub(crate) struct SharedPermit {
    held: Arc<Held>,
    /// `None` on HTTP/1.
    ended: Option<EndedResponses>,
}

/// Resources that a response holds until it is sent.
#[derive(Debug)]
struct Held {
    _permit: Share,
    /// Dropped with the permit, so that the metric counts every permit that is taken.
    _counted: Option<Counted>,
    /// Set at the end of the request.
    generation: OnceLock<Generation>,
}

impl SharedPermit {
    /// Shares `permit`; `ended` tracks the ended responses of the connection.
    pub(crate) fn new(
        permit: Share,
        counted: Option<Counted>,
        ended: Option<EndedResponses>,
    ) -> Self {
        let held = Held {
            _permit: permit,
            _counted: counted,
            generation: OnceLock::new(),
        };
        Self {
            held: Arc::new(held),
            ended,
        }
    }

    /// Ties the permit to `data`, until the last copy of it is dropped.
    pub(crate) fn held_by(&self, data: Bytes) -> Bytes {
        Bytes::from_owner(Unsent {
            data,
            _held: Arc::clone(&self.held),
        })
    }
}

/// In `Drop`, because a deadline may end a request before its last phase.
impl Drop for SharedPermit {
    fn drop(&mut self) {
        if let Some(ended) = &self.ended {
            let _ = self.held.generation.set(ended.generation());
        }
    }
}

struct Unsent {
    data: Bytes,
    _held: Arc<Held>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}
