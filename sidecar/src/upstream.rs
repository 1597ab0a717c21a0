//! The service behind: its address and the connection settings.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::Uri;
use pingora::upstreams::peer::{H1UpgradePolicy, HttpPeer};

use crate::own_address::{is_of_this_host, leads_to};

/// Below the 5 s after which Node closes an idle connection: of the common servers it is the
/// quickest, and a POST on a connection that is just being closed fails.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Where the service listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpstreamAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Why `--upstream` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("expected http://HOST:PORT or unix:/PATH")]
    Malformed,
    #[error("{0}:// is not supported; expected http:// or unix:")]
    Scheme(String),
    #[error("expected an absolute path after unix:")]
    SocketPath,
    #[error("{0} cannot be resolved: {1}")]
    Unresolved(String, String),
}

impl FromStr for UpstreamAddress {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return socket_path(path);
        }
        let uri: Uri = text.parse().map_err(|_| UpstreamError::Malformed)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(UpstreamError::Malformed);
        };
        if scheme != "http" {
            return Err(UpstreamError::Scheme(scheme.to_owned()));
        }
        // The sidecar forwards the client's path as it is: one here would have no effect.
        if authority.as_str().contains('@') || uri.path() != "/" || uri.query().is_some() {
            return Err(UpstreamError::Malformed);
        }
        Ok(Self::Tcp {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
        })
    }
}

impl UpstreamAddress {
    /// Whether who connects to it reaches a socket that listens on `listen`. Only a name whose port
    /// is the same is resolved for that.
    pub(crate) fn leads_to(&self, listen: SocketAddr) -> bool {
        match self {
            Self::Tcp { host, port } if *port == listen.port() => (host.as_str(), *port)
                .to_socket_addrs()
                .is_ok_and(|mut all| all.any(|one| leads_to(one, listen, is_of_this_host))),
            _ => false,
        }
    }
}

/// An abstract socket (leading NUL) is no path, and Pingora panics on it.
fn socket_path(path: &str) -> Result<UpstreamAddress, UpstreamError> {
    let usable = path.starts_with('/') && !path.contains('\0');
    if usable {
        Ok(UpstreamAddress::Unix(path.into()))
    } else {
        Err(UpstreamError::SocketPath)
    }
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "http://{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// How long the service may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UpstreamTimeouts {
    pub(crate) connect: Duration,
    /// For the answer's head and for each read of its body; `None` waits for ever.
    pub(crate) read: Option<Duration>,
}

/// The prototypes that every request's peer is cloned from: building one means parsing its address.
#[derive(Debug)]
pub(crate) struct Upstream {
    plain: HttpPeer,
    websocket: HttpPeer,
}

impl Upstream {
    /// Resolves the address once.
    pub(crate) fn new(
        address: &UpstreamAddress,
        timeouts: UpstreamTimeouts,
    ) -> Result<Self, UpstreamError> {
        let mut plain = peer(address)?;
        let options = &mut plain.options;
        options.connection_timeout = Some(timeouts.connect);
        options.total_connection_timeout = Some(timeouts.connect);
        options.read_timeout = timeouts.read;
        options.write_timeout = timeouts.read;
        options.idle_timeout = Some(IDLE_TIMEOUT);
        // The default today; what may become a tunnel must not change with an update.
        options.http_upstream_request_policy.h1_upgrade = H1UpgradePolicy::WebSocketOnly;
        let mut websocket = plain.clone();
        // A silent WebSocket is a healthy one.
        websocket.options.read_timeout = None;
        Ok(Self { plain, websocket })
    }

    pub(crate) fn peer(&self, websocket: bool) -> Box<HttpPeer> {
        let prototype = if websocket {
            &self.websocket
        } else {
            &self.plain
        };
        Box::new(prototype.clone())
    }
}

fn peer(address: &UpstreamAddress) -> Result<HttpPeer, UpstreamError> {
    match address {
        UpstreamAddress::Unix(path) => path
            .to_str()
            .and_then(|path| HttpPeer::new_uds(path, false, String::new()).ok())
            .ok_or(UpstreamError::SocketPath),
        UpstreamAddress::Tcp { host, port } => {
            Ok(HttpPeer::new(resolve(host, *port)?, false, String::new()))
        }
    }
}

/// IPv4 first: most services bind `127.0.0.1`, and `localhost` is both.
fn resolve(host: &str, port: u16) -> Result<SocketAddr, UpstreamError> {
    let unresolved = |why: String| UpstreamError::Unresolved(host.to_owned(), why);
    (host, port)
        .to_socket_addrs()
        .map_err(|error| unresolved(error.to_string()))?
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| unresolved("no address".to_owned()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_address_is_a_port_or_a_socket() {
        for (text, shown) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://localhost/", "http://localhost:80"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("unix:/run/app.sock", "unix:/run/app.sock"),
        ] {
            assert_eq!(text.parse::<UpstreamAddress>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        for (text, error) in [
            ("", UpstreamError::Malformed),
            ("127.0.0.1:3000", UpstreamError::Malformed),
            ("http://a:1/path", UpstreamError::Malformed),
            ("http://a:1/?q", UpstreamError::Malformed),
            ("http://u:p@a:1", UpstreamError::Malformed),
            ("https://a:1", UpstreamError::Scheme("https".into())),
            ("h2c://a:1", UpstreamError::Scheme("h2c".into())),
            ("unix:", UpstreamError::SocketPath),
            ("unix:run/app.sock", UpstreamError::SocketPath),
            ("unix:@app", UpstreamError::SocketPath),
        ] {
            assert_eq!(text.parse::<UpstreamAddress>(), Err(error), "{text}");
        }
    }

    #[test]
    fn a_socket_path_that_the_system_cannot_take_is_refused() {
        let address = UpstreamAddress::Unix(format!("/{}", "a".repeat(200)).into());
        assert_eq!(peer(&address).unwrap_err(), UpstreamError::SocketPath);
    }

    #[test]
    fn localhost_means_ipv4() {
        assert_eq!(resolve("localhost", 1).unwrap(), ([127, 0, 0, 1], 1).into());
        assert!(resolve("::1", 1).unwrap().is_ipv6());
        assert!(matches!(
            resolve("postern.invalid", 1),
            Err(UpstreamError::Unresolved(..))
        ));
    }

    #[test]
    fn a_websocket_may_be_silent_and_an_answer_may_not() {
        let timeouts = UpstreamTimeouts {
            connect: Duration::from_secs(1),
            read: Some(Duration::from_secs(2)),
        };
        let upstream = Upstream::new(&"http://127.0.0.1:1".parse().unwrap(), timeouts).unwrap();
        assert_eq!(upstream.peer(true).options.read_timeout, None);
        assert_eq!(upstream.peer(false).options.read_timeout, timeouts.read);
    }
}
