//! Where the auth server is: asked anew at every tick.
//!
//! One address is tried per tick, without retries (contract §8: 0/0); with several instances the
//! next tick takes the next one.

mod asked;
mod dns;
mod fixed;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use contract::path_patterns::ContextPath;
use http::Uri;
use http::uri::Scheme;

pub(crate) use asked::Asked;
pub(crate) use dns::DnsName;
pub(crate) use fixed::FixedAddress;

/// The configured auth server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthServer {
    /// What is spoken with every instance.
    scheme: Scheme,
    location: Location,
    context: ContextPath,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Location {
    Fixed(FixedAddress),
    Dns(DnsName),
}

/// One instance to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    /// `host:port`: which one it is, in logs and among others.
    pub(crate) authority: String,
    /// Where to connect to; `None` where the HTTP client resolves `host` itself.
    pub(crate) address: Option<SocketAddr>,
    /// `host:port` of the `Host` field, and the host that a certificate has to name: the configured
    /// name, also where an address is connected to. The port is the one connected to.
    pub(crate) host: String,
}

/// Why there is no instance to ask right now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiscoveryError {
    #[error("looking up {name} failed: {cause}")]
    Lookup { name: String, cause: std::io::Error },
    #[error("looking up {name} took too long")]
    LookupTimeout { name: String },
    #[error("{name} has no address")]
    NoAddress { name: String },
}

/// Why `--auth-server` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthServerError {
    #[error("expected http://HOST:PORT/CONTEXT or dns://NAME:PORT/CONTEXT")]
    Malformed,
    #[error("{0}:// is not supported; expected http:// or dns://")]
    Scheme(String),
    #[error("dns:// needs a port")]
    PortMissing,
    #[error("the context path is not usable: {0}")]
    Context(String),
}

impl AuthServer {
    /// Finds the instance for this tick, in view of those that were asked before.
    pub(crate) async fn locate(&self, asked: &Asked) -> Result<Instance, DiscoveryError> {
        match &self.location {
            Location::Fixed(address) => Ok(address.instance()),
            Location::Dns(name) => name.next_instance(asked).await,
        }
    }

    /// `http` or `https`.
    pub(crate) const fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Whether what is sent there stays on this host.
    pub(crate) fn is_on_loopback(&self) -> bool {
        let host = match &self.location {
            Location::Fixed(address) => address.host(),
            Location::Dns(name) => &name.host,
        };
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    }

    /// The auth server's context path.
    pub(crate) fn context(&self) -> &ContextPath {
        &self.context
    }
}

impl FromStr for AuthServer {
    type Err = AuthServerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: Uri = text.parse().map_err(|_| AuthServerError::Malformed)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(AuthServerError::Malformed);
        };
        // `host()` leaves user information out: what is not understood must not be dropped.
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(AuthServerError::Malformed);
        }
        let location = match scheme {
            "http" => Location::Fixed(FixedAddress::new(authority)),
            "dns" => Location::Dns(DnsName {
                host: authority.host().to_owned(),
                port: authority.port_u16().ok_or(AuthServerError::PortMissing)?,
            }),
            other => return Err(AuthServerError::Scheme(other.to_owned())),
        };
        let context = uri
            .path()
            .trim_end_matches('/')
            .parse::<ContextPath>()
            .map_err(|error| AuthServerError::Context(error.to_string()))?;
        Ok(Self {
            scheme: Scheme::HTTP,
            location,
            context,
        })
    }
}

impl fmt::Display for AuthServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::Fixed(address) => write!(f, "{}://{address}", self.scheme),
            Location::Dns(name) => write!(f, "dns://{name}"),
        }?;
        write!(f, "{}", self.context)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_address_is_read_with_its_context_path() {
        for (text, shown) in [
            ("http://127.0.0.1:9000/auth", "http://127.0.0.1:9000/auth"),
            ("http://auth:9000/auth/", "http://auth:9000/auth"),
            ("http://auth", "http://auth"),
            ("http://[::1]:9000/a/b", "http://[::1]:9000/a/b"),
            (
                "dns://auth.internal:9000/auth",
                "dns://auth.internal:9000/auth",
            ),
        ] {
            let parsed: AuthServer = text.parse().unwrap();
            assert_eq!(parsed.to_string(), shown);
        }
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let refused = |text: &str| text.parse::<AuthServer>().unwrap_err();
        for text in [
            "",
            "auth",
            "/auth",
            "http:///auth",
            "http://user@auth/auth",
            "http://auth/auth?x",
        ] {
            assert_eq!(refused(text), AuthServerError::Malformed, "{text}");
        }
        for scheme in ["https", "nacos", "dns+https"] {
            assert_eq!(
                refused(&format!("{scheme}://auth:9000/auth")),
                AuthServerError::Scheme(scheme.to_owned())
            );
        }
        assert_eq!(refused("dns://auth/auth"), AuthServerError::PortMissing);
    }

    #[test]
    fn loopback_is_known_by_address_and_by_name() {
        for (text, on_loopback) in [
            ("http://127.0.0.1:9000/auth", true),
            ("http://[::1]:9000/auth", true),
            ("http://localhost/auth", true),
            ("dns://localhost:9000/auth", true),
            ("http://auth:9000/auth", false),
            ("http://10.0.0.1:9000/auth", false),
            ("dns://127.evil:9000/auth", false),
        ] {
            let server: AuthServer = text.parse().unwrap();
            assert_eq!(server.is_on_loopback(), on_loopback, "{text}");
        }
    }

    #[tokio::test]
    async fn a_fixed_address_is_the_only_instance() {
        let server: AuthServer = "http://auth:9000/auth".parse().unwrap();
        let mut asked = Asked::default();
        let first = server.locate(&asked).await.unwrap();
        assert_eq!(first.authority, "auth:9000");
        asked.note(first.clone(), false);
        assert_eq!(server.locate(&asked).await.unwrap(), first);
    }
}
