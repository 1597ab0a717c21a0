//! The address of a key set.

use std::fmt;
use std::str::FromStr;

use http::uri::Scheme;
use runtime::net::host_port::NoPort;
use runtime::net::server_url::{ServerUrl, ServerUrlError};

/// `http(s)://HOST[:PORT]/PATH[?QUERY]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JwksAddress(ServerUrl);

/// The error of an unusable `--jwks`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwksAddressError {
    #[error("expected https://HOST/PATH or http://HOST/PATH, without user information")]
    Malformed,
    #[error(transparent)]
    Port(#[from] NoPort),
}

impl From<ServerUrlError> for JwksAddressError {
    fn from(error: ServerUrlError) -> Self {
        match error {
            ServerUrlError::Malformed | ServerUrlError::Credentials => Self::Malformed,
            ServerUrlError::Port(error) => Self::Port(error),
        }
    }
}

impl JwksAddress {
    /// Returns true if the keys could be changed on the way.
    pub(crate) fn is_plain_over_a_network(&self) -> bool {
        self.0.is_plain_over_a_network()
    }

    /// Returns it with its query, which may hold a secret.
    pub(crate) fn with_query(&self) -> String {
        let (scheme, authority) = (self.scheme(), self.0.authority());
        format!("{scheme}://{authority}{}", self.0.target())
    }

    pub(crate) const fn scheme(&self) -> &Scheme {
        self.0.scheme()
    }

    pub(crate) fn is_https(&self) -> bool {
        *self.scheme() == Scheme::HTTPS
    }

    /// Returns the host without the port.
    pub(super) fn host(&self) -> &str {
        self.0.host()
    }
}

impl FromStr for JwksAddress {
    type Err = JwksAddressError;

    fn from_str(text: &str) -> Result<Self, JwksAddressError> {
        let url: ServerUrl = text.parse()?;
        url.is_http()
            .then_some(Self(url))
            .ok_or(JwksAddressError::Malformed)
    }
}

/// Renders it without the query.
impl fmt::Display for JwksAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (authority, path) = (self.0.authority(), self.0.target().path());
        write!(f, "{}://{authority}{path}", self.scheme())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_address_needs_scheme_and_host_and_hides_its_query() {
        for (text, expected, plain) in [
            ("https://idp/keys", "https://idp/keys", false),
            (
                "http://127.0.0.1:1/keys?k=v",
                "http://127.0.0.1:1/keys",
                false,
            ),
            ("http://localhost/", "http://localhost/", false),
            ("http://idp/keys", "http://idp/keys", true),
            ("https://idp", "https://idp/", false),
        ] {
            let address: JwksAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), expected);
            assert_eq!(address.is_plain_over_a_network(), plain, "{text}");
        }
        for text in [
            "",
            "idp/keys",
            "/keys",
            "ftp://idp/keys",
            "file:///keys",
            "https:///keys",
            "https://user:pw@idp/keys",
            "https://idp/keys#top",
        ] {
            let rejected = text.parse::<JwksAddress>();
            assert_eq!(rejected, Err(JwksAddressError::Malformed), "{text}");
        }
        let error = "https://idp:70000/keys".parse::<JwksAddress>();
        let why = "port '70000' is not between 1 and 65535";
        assert_eq!(error.unwrap_err().to_string(), why);
    }
}
