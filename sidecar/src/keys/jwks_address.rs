//! The address of a key set.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;
use runtime::host_port::{NoPort, port_of};
use runtime::loopback::is_loopback_host;

use crate::discovery::Instance;

/// `http(s)://HOST[:PORT]/PATH[?QUERY]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JwksAddress {
    scheme: Scheme,
    authority: String,
    target: String,
}

/// The error of an unusable `--jwks-url`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwksAddressError {
    #[error("expected https://HOST/PATH or http://HOST/PATH, without user information")]
    Malformed,
    #[error(transparent)]
    Port(#[from] NoPort),
}

impl JwksAddress {
    /// Returns true if the keys could be changed on the way.
    pub(crate) fn is_plain_over_a_network(&self) -> bool {
        self.scheme == Scheme::HTTP && !is_loopback_host(&self.host())
    }

    /// Returns it with its query, which may hold a secret.
    pub(crate) fn with_query(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.target)
    }

    pub(crate) const fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    pub(crate) fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Returns the host without the port.
    pub(super) fn host(&self) -> String {
        let authority = self.authority.parse::<http::uri::Authority>();
        authority.map_or_else(|_| self.authority.clone(), |known| known.host().to_owned())
    }

    /// Returns path and query.
    pub(super) fn target(&self) -> &str {
        &self.target
    }

    /// Returns the server; the HTTP client resolves its name.
    pub(super) fn instance(&self) -> Instance {
        Instance {
            authority: self.authority.clone(),
            address: None,
            host: self.authority.clone(),
        }
    }
}

impl FromStr for JwksAddress {
    type Err = JwksAddressError;

    fn from_str(text: &str) -> Result<Self, JwksAddressError> {
        // A fragment is never sent, and `Uri` would drop it.
        let uri: Uri = text.parse().map_err(|_| JwksAddressError::Malformed)?;
        let scheme = uri
            .scheme()
            .filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let (Some(scheme), Some(authority)) = (scheme, uri.authority()) else {
            return Err(JwksAddressError::Malformed);
        };
        if authority.as_str().contains('@') || text.contains('#') {
            return Err(JwksAddressError::Malformed);
        }
        port_of(authority)?;
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Ok(Self {
            scheme: scheme.clone(),
            authority: authority.to_string(),
            target: target.to_owned(),
        })
    }
}

/// Renders it without the query.
impl fmt::Display for JwksAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.target.split('?').next().unwrap_or_default();
        write!(f, "{}://{}{path}", self.scheme, self.authority)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_address_needs_scheme_and_host_and_hides_its_query() {
        for (text, shown, plain) in [
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
            assert_eq!(address.to_string(), shown);
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
            let refused = text.parse::<JwksAddress>();
            assert_eq!(refused, Err(JwksAddressError::Malformed), "{text}");
        }
        let error = "https://idp:70000/keys".parse::<JwksAddress>();
        let why = "port '70000' is not between 1 and 65535";
        assert_eq!(error.unwrap_err().to_string(), why);
    }
}
