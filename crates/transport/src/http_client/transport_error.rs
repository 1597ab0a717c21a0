//! The reason why a request has no response.

use std::error::Error;
use std::io;

use crate::tls::failure::with_causes;
use crate::tls::peer_settings::PeerSettings;

/// The reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No whole response.
    #[error("{why}")]
    Http {
        /// The causes, in words.
        why: String,
        /// True for a failure of TLS.
        is_of_tls: bool,
    },
    /// A response longer than this.
    #[error("the response is longer than {0} bytes")]
    TooLong(usize),
    /// A response with this content coding.
    #[error(
        "the response is encoded (Content-Encoding: {0}), although the request accepts no encoding"
    )]
    Encoded(String),
    /// TLS files that cannot be used yet.
    #[error("{0}")]
    NoClient(String),
}

impl TransportError {
    /// Describes an error of the library without the URL, whose query may hold a secret.
    pub(super) fn from_library(error: reqwest::Error, named: &PeerSettings) -> Self {
        let error = error.without_url();
        Self::Http {
            why: with_causes(&error, named),
            is_of_tls: causes(&error).any(is_of_tls),
        }
    }

    /// Returns true where the server may respond later without a change of the configuration.
    #[must_use]
    pub const fn is_away(&self) -> bool {
        match self {
            // An untrusted certificate, or a port without TLS, does not change by waiting.
            Self::Http { is_of_tls, .. } => !*is_of_tls,
            Self::TooLong(_) | Self::Encoded(_) | Self::NoClient(_) => false,
        }
    }
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

/// Returns true for an error of TLS, which is wrapped more than once.
fn is_of_tls(mut cause: &(dyn Error + 'static)) -> bool {
    while let Some(within) = cause.downcast_ref().and_then(io::Error::get_ref) {
        cause = within;
    }
    cause.is::<rustls::Error>()
}
