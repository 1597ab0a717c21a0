//! The keys of an issuer: its discovery document, its key set, how long a response is fresh. All keys of
//! a fetch are validated before any is trusted.
//!
//! Not here: the time of a fetch, and the use of its keys.

pub mod document;
pub mod key_set;
pub mod known_set;

use http::StatusCode;
use postern_token::keys::KeyError;

use self::document::DocumentError;
use crate::http_client::{TransportError, Unexpected};

/// The purpose of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A regular fetch, which notices changes in time.
    Tick,
    /// A token names an unknown key: the promised freshness no longer holds.
    UnknownKey,
}

/// The reason why there is no key set, or why it is not trusted. Each text is one line, for the log.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// No response to the request for the discovery document.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// No response to the request for the set.
    #[error("the key set was not fetched: {0}")]
    SetTransport(TransportError),
    /// A discovery document that is not followed.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A status without a set.
    #[error("the response to the request for the key set was {}", Unexpected(*.0))]
    Status(StatusCode),
    /// A token that the server of the set rejects.
    #[error("403: bind the ClusterRole system:service-account-issuer-discovery to this pod")]
    Forbidden,
    /// A set with an unusable key.
    #[error("the key set cannot be used: {0}")]
    Unusable(#[from] KeyError),
    /// An unusable file.
    #[error("{0}")]
    File(String),
}

impl KeySetError {
    /// Returns true where a later fetch may succeed without a change of the configuration.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            Self::Transport(error) | Self::SetTransport(error) => error.is_away(),
            Self::Document(DocumentError::Status(status)) | Self::Status(status) => {
                Unexpected(*status).is_for_now()
            }
            _ => false,
        }
    }
}
