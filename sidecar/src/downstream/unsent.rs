//! What an HTTP/2 client has not read yet of its answer still belongs to its request: `h2` keeps it when the
//! work on the request is over, and the place among those in flight is given back only with its last byte.

use std::sync::Arc;

use bytes::Bytes;

use crate::downstream::limits::Place;
use crate::telemetry::metrics::Counted;

/// The place of one request, shared with what is left to send of its answer.
#[derive(Debug, Clone)]
pub(crate) struct SharedPlace {
    _held: Arc<(Place, Option<Counted>)>,
}

impl SharedPlace {
    /// `counted` goes with the place, so that the metric shows why there is none.
    pub(crate) fn new(place: Place, counted: Option<Counted>) -> Self {
        Self {
            _held: Arc::new((place, counted)),
        }
    }

    /// Keeps the place for as long as `data` is somewhere in memory.
    pub(crate) fn kept_by(&self, data: Bytes) -> Bytes {
        Bytes::from_owner(Unsent {
            data,
            _place: self.clone(),
        })
    }
}

struct Unsent {
    data: Bytes,
    _place: SharedPlace,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}
