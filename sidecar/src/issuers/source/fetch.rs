//! The result of one fetch of keys.

use postern_token::keys::{KeyError, KeySet};
use postern_transport::http_client::{TransportError, Unexpected};
use postern_transport::issuer::KeySetError;

use super::key_response::KeyResponseError;
use crate::discovery::DiscoveryError;
use crate::issuers::revocations::fetched_list::FetchedList;

/// The reason why a fetch brought no keys. One line each, for the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    KeyResponse(#[from] KeyResponseError),
    /// The URL has no query, which would hold a secret.
    #[error("{cause} at {url}: {hint}")]
    NoEndpoint {
        cause: String,
        url: String,
        hint: String,
    },
    #[error("the key cannot be used: {0}")]
    Key(#[from] KeyError),
    #[error(transparent)]
    KeySet(#[from] KeySetError),
    #[error("the key set lacks the key of the key endpoint")]
    Inconsistent,
    /// The details are in the log alone: any client may read this text at the readiness probe.
    #[error("the fetch panicked, which is a bug in this program")]
    Panicked,
}

impl FetchError {
    /// Returns true where a later fetch may succeed without a change of the configuration.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Self::Discovery(_) => true,
            Self::Transport(error) => error.is_away(),
            Self::KeySet(error) => error.is_away(),
            Self::KeyResponse(KeyResponseError::Rejected { status, .. }) => {
                Unexpected(*status).is_for_now()
            }
            _ => false,
        }
    }
}

/// The result of a fetch.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// `None` where no request was made: the last response is still fresh.
    pub(crate) keys: Option<KeySet>,
    pub(crate) list: FetchedList,
    /// A warning for the operator; the keys count all the same.
    pub(crate) warning: Option<String>,
}
