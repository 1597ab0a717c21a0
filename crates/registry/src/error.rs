//! The failure of a request.

use http::StatusCode;

/// A failed request to the registry. No text holds an address, a credential or a text of the server.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No whole response.
    #[error("the registry does not respond: {0}")]
    Unreachable(String),
    /// A status without a result.
    #[error("the registry rejects the request: {0}")]
    Rejected(StatusCode),
    /// A result that is no success.
    #[error("the registry responds with the code {0}")]
    Code(i64),
    /// A response of another form.
    #[error("the response of the registry is not understood")]
    NotUnderstood,
    /// A required login that failed with this status.
    #[error("the registry rejects the login: {0}")]
    Login(StatusCode),
    /// An HTTP client that cannot be built.
    #[error("no TLS to the registry: {0}")]
    Tls(String),
}
