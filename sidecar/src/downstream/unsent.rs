//! What an HTTP/2 client has not read yet of its answer still belongs to its request: `h2` keeps it when the
//! work on the request is over, and the place among those in flight is given back only with its last byte.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::downstream::limits::InFlightPermit;
use crate::downstream::stream::{EndedResponses, Generation};
use crate::telemetry::metrics::Counted;

/// The place of one request, shared with what is left to send of its answer.
#[derive(Debug)]
pub(crate) struct SharedPermit {
    held: Arc<Held>,
    /// `None` on HTTP/1.
    ended: Option<EndedResponses>,
}

/// Everything that an answer holds until it is sent.
#[derive(Debug)]
struct Held {
    _permit: InFlightPermit,
    /// Goes with the place, so that the metric shows why there is none.
    _counted: Option<Counted>,
    /// Set when the work on the request is over.
    generation: OnceLock<Generation>,
}

impl SharedPermit {
    /// `ended` are the other answers of the connection.
    pub(crate) fn new(
        permit: InFlightPermit,
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

    /// Keeps the place for as long as `data` is somewhere in memory.
    pub(crate) fn held_by(&self, data: Bytes) -> Bytes {
        Bytes::from_owner(Unsent {
            data,
            _held: Arc::clone(&self.held),
        })
    }
}

/// However the work on a request ends: it may be given up before its last phase.
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
