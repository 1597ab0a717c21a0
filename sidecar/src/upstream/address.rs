//! The address and the protocol of the service, parsed from `--upstream`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use postern_http::host::host_port::NoPort;
use postern_http::host::server_url::{ServerUrl, ServerUrlError};

use crate::upstream::loop_check::{is_of_this_host, leads_to};

/// Parsed value of `--upstream`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpstreamAddress {
    pub(crate) protocol: Protocol,
    pub(crate) endpoint: Endpoint,
}

/// Protocol of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/2 from the first byte on, without TLS: gRPC.
    H2c,
    /// HTTP/2 or HTTP/1.1 over TLS, whichever the service chooses.
    Https,
}

/// Endpoint of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A name or an address; a name is resolved periodically.
    Tcp { host: String, port: u16 },
    /// The file of a Unix socket.
    Unix(PathBuf),
}

/// Error of a value of `--upstream`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UpstreamAddressError {
    #[error("expected http://, https:// or h2c://HOST:PORT, or unix:/PATH")]
    Malformed,
    #[error("{0}:// is not supported; expected http://, https://, h2c:// or unix:")]
    Scheme(String),
    #[error("has a path, a query or a fragment; leave it out: the service gets the client's")]
    Path,
    #[error("expected an absolute path after unix:")]
    SocketPath,
    #[error(transparent)]
    Port(#[from] NoPort),
}

impl From<ServerUrlError> for UpstreamAddressError {
    fn from(error: ServerUrlError) -> Self {
        match error {
            ServerUrlError::Port(error) => Self::Port(error),
            ServerUrlError::Fragment => Self::Path,
            _ => Self::Malformed,
        }
    }
}

impl FromStr for UpstreamAddress {
    type Err = UpstreamAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return socket(Protocol::Http, path);
        }
        if let Some(path) = text.strip_prefix("h2c+unix:") {
            return socket(Protocol::H2c, path);
        }
        let url: ServerUrl = text.parse()?;
        let scheme = url.scheme().as_str();
        let protocol = Protocol::from_scheme(scheme)
            .ok_or_else(|| UpstreamAddressError::Scheme(scheme.to_owned()))?;
        // The client's path is forwarded unchanged: a path here would have no effect.
        if url.target() != "/" {
            return Err(UpstreamAddressError::Path);
        }
        let endpoint = Endpoint::Tcp {
            host: url.host().trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(protocol.default_port()),
        };
        Ok(Self { protocol, endpoint })
    }
}

impl Protocol {
    fn from_scheme(scheme: &str) -> Option<Self> {
        [Self::Http, Self::H2c, Self::Https]
            .into_iter()
            .find(|protocol| protocol.scheme() == scheme)
    }

    const fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::H2c => "h2c",
            Self::Https => "https",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Http | Self::H2c => 80,
            Self::Https => 443,
        }
    }
}

impl UpstreamAddress {
    /// Returns true if every request is sent over HTTP/2, which has no upgrade to a WebSocket.
    pub(crate) fn speaks_http_2(&self) -> bool {
        self.protocol == Protocol::H2c
    }

    /// Returns true if a connection to the address reaches a socket that listens on `listen`. A
    /// name is resolved only if the ports are equal.
    pub(crate) fn leads_to(&self, listen: SocketAddr) -> bool {
        match &self.endpoint {
            Endpoint::Tcp { host, port } if *port == listen.port() => (host.as_str(), *port)
                .to_socket_addrs()
                .is_ok_and(|mut all| all.any(|one| leads_to(one, listen, is_of_this_host))),
            _ => false,
        }
    }
}

/// Parses a socket path; Pingora panics on an abstract socket (leading NUL).
fn socket(protocol: Protocol, path: &str) -> Result<UpstreamAddress, UpstreamAddressError> {
    if !path.starts_with('/') || path.contains('\0') {
        return Err(UpstreamAddressError::SocketPath);
    }
    Ok(UpstreamAddress {
        protocol,
        endpoint: Endpoint::Unix(path.into()),
    })
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.protocol.scheme();
        match &self.endpoint {
            // An IPv6 address stands in brackets in front of a port.
            Endpoint::Tcp { host, port } if host.contains(':') => {
                write!(f, "{scheme}://[{host}]:{port}")
            }
            Endpoint::Tcp { host, port } => write!(f, "{scheme}://{host}:{port}"),
            Endpoint::Unix(path) if self.protocol == Protocol::Http => {
                write!(f, "unix:{}", path.display())
            }
            Endpoint::Unix(path) => write!(f, "{scheme}+unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_address_is_a_port_or_a_socket() {
        for (text, displayed) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://localhost/", "http://localhost:80"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("h2c://localhost:50051", "h2c://localhost:50051"),
            ("https://service.example", "https://service.example:443"),
            ("unix:/run/app.sock", "unix:/run/app.sock"),
            ("h2c+unix:/run/app.sock", "h2c+unix:/run/app.sock"),
        ] {
            assert_eq!(
                text.parse::<UpstreamAddress>().unwrap().to_string(),
                displayed
            );
        }
    }
}
