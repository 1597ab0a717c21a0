//! One fetch of keys: its purpose, and how it ends.

use contract::keys::{KeyError, KeySet};

use super::http_client::{TransportError, Unexpected};
use super::jwks::JwksError;
use super::key_response::AnswerError;
use crate::discovery::DiscoveryError;

/// Why a fetch brought no keys. One line each, for the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// Without the query, which holds a secret.
    #[error("{cause} at {url}: {hint}")]
    NoEndpoint {
        cause: AnswerError,
        url: String,
        hint: String,
    },
    #[error("the key cannot be used: {0}")]
    Key(#[from] KeyError),
    #[error("the key set was not fetched: {0}")]
    JwksTransport(TransportError),
    #[error(transparent)]
    Jwks(#[from] JwksError),
    #[error("{0}")]
    File(String),
    /// Its own words are in the log, and readiness shows this one to anybody.
    #[error("the fetch has panicked, which is a defect of this program")]
    Panicked,
}

impl FetchError {
    /// Returns true where a later fetch may succeed without a change of the configuration.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Self::Discovery(_) => true,
            Self::Transport(error) | Self::JwksTransport(error) => error.is_away(),
            Self::Answer(AnswerError::Refused { status, .. })
            | Self::Jwks(JwksError::Refused(status)) => Unexpected(*status).is_for_now(),
            _ => false,
        }
    }
}

/// What a fetch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To notice changes in good time.
    Tick,
    /// A token names a key that is not known: what was promised to stay has changed.
    UnknownKey,
}

/// What a fetch brought.
#[derive(Debug)]
pub(crate) enum Fetched {
    Keys(KeySet),
    /// Nothing was asked: the last answer said how long it stays good.
    StillFresh,
}
