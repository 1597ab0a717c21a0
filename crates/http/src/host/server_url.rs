//! The URL of a server as an operator writes it in a setting.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

use crate::host::host_port::{NoPort, port_of};
use crate::host::loopback::is_loopback_host;

/// An absolute URL with a host, without user information and without a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    scheme: Scheme,
    authority: Authority,
    port: Option<u16>,
    target: PathAndQuery,
}

/// URL parse error. The texts do not repeat the URL: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerUrlError {
    /// A URL of another form.
    #[error("expected SCHEME://HOST[:PORT][/PATH]")]
    Malformed,
    /// A fragment, which no server gets.
    #[error("has a fragment: leave out # and what follows")]
    Fragment,
    /// User information.
    #[error("has a user or a password")]
    Credentials,
    /// An unusable port.
    #[error(transparent)]
    Port(#[from] NoPort),
    /// Another scheme, where only HTTP is possible.
    #[error("expected https://HOST/PATH or http://HOST/PATH, without user information")]
    NotHttp,
}

impl ServerUrl {
    /// Parses a URL of `http` or `https`.
    ///
    /// # Errors
    /// [`ServerUrlError::NotHttp`], [`ServerUrlError::Port`], [`ServerUrlError::Fragment`].
    pub fn from_http(text: &str) -> Result<Self, ServerUrlError> {
        match text.parse::<Self>() {
            Ok(url) if [Scheme::HTTP, Scheme::HTTPS].contains(&url.scheme) => Ok(url),
            Err(error @ (ServerUrlError::Port(_) | ServerUrlError::Fragment)) => Err(error),
            _ => Err(ServerUrlError::NotHttp),
        }
    }

    /// Returns the scheme.
    #[must_use]
    pub const fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Returns true for `https`.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Returns `HOST[:PORT]`.
    #[must_use]
    pub const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the host, an IPv6 address in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    /// Returns the port if the URL has one.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns path and query; the path is never empty.
    #[must_use]
    pub const fn target(&self) -> &PathAndQuery {
        &self.target
    }

    /// Returns the whole URL; the query may hold a secret.
    #[must_use]
    pub fn with_query(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.target)
    }

    /// Returns true if others could read and change what is sent.
    #[must_use]
    pub fn is_plain_over_a_network(&self) -> bool {
        self.scheme == Scheme::HTTP && !is_loopback_host(self.host())
    }
}

/// Renders the URL without its query.
impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.target.path();
        write!(f, "{}://{}{path}", self.scheme, self.authority)
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<Self, ServerUrlError> {
        let parts = text
            .parse::<Uri>()
            .map_err(|_| ServerUrlError::Malformed)?
            .into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(ServerUrlError::Malformed);
        };
        // `Authority::host` and `Uri` drop these two, which must not be ignored silently.
        if authority.as_str().contains('@') {
            return Err(ServerUrlError::Credentials);
        }
        if authority.host().is_empty() {
            return Err(ServerUrlError::Malformed);
        }
        if text.contains('#') {
            return Err(ServerUrlError::Fragment);
        }
        Ok(Self {
            scheme,
            port: port_of(&authority).map_err(|error| {
                if text.contains('@') {
                    // The beginning of a password with a slash.
                    ServerUrlError::Credentials
                } else {
                    error.into()
                }
            })?,
            authority,
            target: parts
                .path_and_query
                .unwrap_or_else(|| PathAndQuery::from_static("/")),
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_url_has_a_scheme_a_host_and_perhaps_a_port() {
        for (text, scheme, host, port, target) in [
            ("http://a", "http", "a", None, "/"),
            ("https://a:1/b?c", "https", "a", Some(1), "/b?c"),
            ("dns+https://a.b:1/", "dns+https", "a.b", Some(1), "/"),
            ("h2c://[::1]:65535", "h2c", "[::1]", Some(65535), "/"),
        ] {
            let url: ServerUrl = text.parse().unwrap();
            assert_eq!(url.scheme().as_str(), scheme, "{text}");
            assert_eq!((url.host(), url.port()), (host, port), "{text}");
            assert_eq!(url.target().as_str(), target, "{text}");
        }
    }

    #[test]
    fn what_would_be_ignored_is_rejected() {
        use ServerUrlError::{Credentials, Fragment, Malformed};
        let rejected = |text: &str| text.parse::<ServerUrl>().unwrap_err();
        for (text, error) in [
            ("", Malformed),
            ("a", Malformed),
            ("a:1", Malformed),
            ("/a", Malformed),
            ("http:///a", Malformed),
            ("http://:1/a", Malformed),
            ("http://a/#b", Fragment),
            ("http://a#b", Fragment),
            ("http://me@a", Credentials),
            ("http://me:hush@a/b", Credentials),
            ("http://me:hu/sh@a/b", Credentials),
        ] {
            assert_eq!(rejected(text), error, "{text}");
        }
        for port in ["65536", "0", "x", ""] {
            let error = rejected(&format!("http://a:{port}/"));
            assert!(matches!(error, ServerUrlError::Port(_)), "{port}");
        }
    }

    #[test]
    fn a_url_of_http_hides_its_query() {
        for (text, expected) in [
            ("https://idp/keys?k=v", "https://idp/keys"),
            ("http://idp", "http://idp/"),
        ] {
            let url = ServerUrl::from_http(text).unwrap();
            assert_eq!(url.to_string(), expected);
        }
        for text in ["", "idp/keys", "ftp://idp/keys", "https://me:hush@idp/keys"] {
            assert_eq!(ServerUrl::from_http(text), Err(ServerUrlError::NotHttp));
        }
        let error = ServerUrl::from_http("https://idp:0/").unwrap_err();
        assert!(matches!(error, ServerUrlError::Port(_)));
    }
}
