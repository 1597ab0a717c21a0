//! The proxy through which keys are fetched, where a network has no other way out.

use std::fmt;
use std::str::FromStr;

use http::uri::Scheme;
use runtime::net::server_url::ServerUrl;

/// `http://HOST:PORT` of a proxy that opens tunnels (CONNECT, RFC 9110 §9.3.6): it sees the name of
/// the key server, and TLS keeps it from the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeysProxy(String);

/// The error of an unusable proxy address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected http://HOST:PORT, without a path and without user information")]
pub(crate) struct KeysProxyError;

impl KeysProxy {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeysProxy {
    type Err = KeysProxyError;

    fn from_str(text: &str) -> Result<Self, KeysProxyError> {
        let url: ServerUrl = text.parse().map_err(|_| KeysProxyError)?;
        let is_plain = *url.scheme() == Scheme::HTTP && url.target() == "/";
        is_plain
            .then(|| Self(format!("http://{}", url.authority())))
            .ok_or(KeysProxyError)
    }
}

impl fmt::Display for KeysProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_host_and_a_port() {
        for (text, address) in [
            ("http://proxy:3128", Some("http://proxy:3128")),
            ("http://10.0.0.1:3128/", Some("http://10.0.0.1:3128")),
            ("https://proxy:3128", None),
            ("http://user:secret@proxy:3128", None),
            ("http://proxy:3128/path", None),
            ("http://proxy:3128?a", None),
            ("socks5://proxy:1080", None),
            ("proxy:3128", None),
            ("", None),
        ] {
            let parsed = text.parse::<KeysProxy>().ok();
            assert_eq!(parsed.as_ref().map(KeysProxy::as_str), address, "{text}");
        }
    }
}
