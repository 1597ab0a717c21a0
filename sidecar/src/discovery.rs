//! The address of the auth server, found anew at every tick.
//!
//! One address is tried per tick, without retries (contract §8: 0/0); with several instances the
//! next tick takes the next one.

mod attempts;
mod dns;
mod nacos;

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use postern_http::host::host_port::NoPort;
use postern_http::host::loopback::is_loopback_host;
use postern_http::host::server_url::{ServerUrl, ServerUrlError};
use postern_http::path::patterns::ContextPath;
use postern_process::exit::ExitError;
use registry::{InvalidRegistryUrl, RegistrySettings};

pub(crate) use attempts::RecentAttempts;
pub(crate) use dns::DnsName;
pub(crate) use nacos::NacosService;

/// Timeout of a lookup: an unresponsive resolver must not use up the whole tick, nor block the next
/// lookup.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// The configured auth server.
#[derive(Debug, Clone)]
pub(crate) struct AuthServer {
    /// The protocol of every instance.
    scheme: Scheme,
    location: Location,
    context: ContextPath,
}

#[derive(Debug, Clone)]
enum Location {
    Fixed(Authority),
    Dns(DnsName),
    Nacos(NacosService),
}

/// An instance of the auth server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    /// `host:port`: the name of the instance in logs and among recent attempts.
    pub(crate) authority: String,
    /// The address to connect to; `None` where the HTTP client resolves `host` itself.
    pub(crate) address: Option<SocketAddr>,
    /// `host:port` of the `Host` field, and the host that a certificate has to name: the configured
    /// name, with the port of the connection.
    pub(crate) host: String,
}

/// The reason why there is no instance now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiscoveryError {
    #[error("lookup of {name} failed: {cause}")]
    Lookup { name: String, cause: std::io::Error },
    #[error("lookup of {name} timed out")]
    LookupTimeout { name: String },
    #[error("{name} has no address")]
    NoAddress { name: String },
    #[error("the registry {registry} has not responded yet")]
    RegistryAway { registry: String },
    #[error("the registry {registry} lists no usable instance of {service}")]
    NoneListed { registry: String, service: String },
}

/// The error of an unusable `--auth-server` or `--revocations-from`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthServerError {
    #[error(
        "expected http://HOST:PORT/CONTEXT, dns://NAME:PORT/CONTEXT or nacos://HOST:PORT/CONTEXT, without a query or a fragment"
    )]
    Malformed,
    #[error("user and password are not allowed here")]
    Credentials,
    #[error(transparent)]
    Port(#[from] NoPort),
    #[error(
        "{0}:// is not supported; expected http, https, dns or nacos, the last two also with +https"
    )]
    Scheme(String),
    #[error("dns:// needs a port")]
    PortMissing,
    #[error(transparent)]
    Registry(#[from] InvalidRegistryUrl),
    #[error("the context path is not usable: {0}")]
    Context(String),
}

impl AuthServer {
    /// Finds the instance for this tick, by recent attempts.
    pub(crate) async fn locate(
        &self,
        attempts: &RecentAttempts,
    ) -> Result<Instance, DiscoveryError> {
        match &self.location {
            Location::Fixed(authority) => Ok(Instance {
                authority: authority.to_string(),
                address: None,
                host: authority.to_string(),
            }),
            Location::Dns(name) => name.next_instance(attempts).await,
            Location::Nacos(service) => service.next_instance(attempts).await,
        }
    }

    /// Reads the files that the URL of a registry, the value of this flag, names.
    ///
    /// # Errors
    /// [`ExitError::Config`], one line with the flag and without a password.
    pub(crate) fn with_registry(mut self, flag: &str) -> Result<Self, ExitError> {
        if let Location::Nacos(service) = &mut self.location {
            let settings = service.settings.clone();
            service.settings = settings.configured(&format!("--{flag}"))?;
        }
        Ok(self)
    }

    /// Returns true if a password goes unencrypted to a registry on another host.
    pub(crate) fn shows_password(&self) -> bool {
        matches!(&self.location, Location::Nacos(service) if service.settings.shows_password())
    }

    /// Returns `http` or `https`.
    pub(crate) const fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Returns true if credentials could be read and changed on the way.
    pub(crate) fn is_plain_over_a_network(&self) -> bool {
        let host = match &self.location {
            Location::Fixed(authority) => authority.host(),
            Location::Dns(name) => &name.host,
            // The hosts that the registry lists are not known before.
            Location::Nacos(_) => return self.scheme == Scheme::HTTP,
        };
        self.scheme == Scheme::HTTP && !is_loopback_host(host)
    }

    /// Returns the end of the URL's scheme where the address has to be found first.
    fn suffix(&self) -> &'static str {
        if self.scheme == Scheme::HTTPS {
            "+https"
        } else {
            ""
        }
    }

    /// Returns the auth server's context path.
    pub(crate) fn context(&self) -> &ContextPath {
        &self.context
    }
}

impl From<ServerUrlError> for AuthServerError {
    fn from(error: ServerUrlError) -> Self {
        match error {
            ServerUrlError::Malformed | ServerUrlError::Fragment | ServerUrlError::NotHttp => {
                Self::Malformed
            }
            ServerUrlError::Credentials => Self::Credentials,
            ServerUrlError::Port(error) => Self::Port(error),
        }
    }
}

impl FromStr for AuthServer {
    type Err = AuthServerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("nacos://") || text.starts_with("nacos+https://") {
            return in_registry(text);
        }
        let url: ServerUrl = text.parse()?;
        if url.target().query().is_some() {
            return Err(AuthServerError::Malformed);
        }
        let scheme = url.scheme().as_str();
        let location = match scheme {
            "http" | "https" => Location::Fixed(url.authority().clone()),
            "dns" | "dns+https" => Location::Dns(DnsName {
                host: url.host().to_owned(),
                port: url.port().ok_or(AuthServerError::PortMissing)?,
            }),
            other => return Err(AuthServerError::Scheme(other.to_owned())),
        };
        Ok(Self {
            scheme: http_scheme(scheme.ends_with("https")),
            location,
            context: context(url.target().path())?,
        })
    }
}

fn in_registry(url: &str) -> Result<AuthServer, AuthServerError> {
    let (settings, instances) = RegistrySettings::for_client(url)?;
    Ok(AuthServer {
        scheme: http_scheme(instances.are_secure),
        location: Location::Nacos(NacosService::new(settings, instances.server_name)),
        context: context(&instances.context)?,
    })
}

const fn http_scheme(is_secure: bool) -> Scheme {
    if is_secure {
        Scheme::HTTPS
    } else {
        Scheme::HTTP
    }
}

fn context(path: &str) -> Result<ContextPath, AuthServerError> {
    path.trim_end_matches('/')
        .parse::<ContextPath>()
        .map_err(|error| AuthServerError::Context(error.to_string()))
}

impl fmt::Display for AuthServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::Fixed(authority) => write!(f, "{}://{authority}", self.scheme),
            Location::Dns(name) => write!(f, "dns{}://{name}", self.suffix()),
            Location::Nacos(service) => {
                write!(f, "nacos{}://{}", self.suffix(), service.settings)
            }
        }?;
        write!(f, "{}", self.context)
    }
}

/// Waits for a lookup of `name`, in bounded time.
async fn in_time<T>(
    name: &str,
    lookup: impl Future<Output = std::io::Result<T>>,
) -> Result<T, DiscoveryError> {
    let name = name.to_owned();
    match tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(cause)) => Err(DiscoveryError::Lookup { name, cause }),
        Err(_) => Err(DiscoveryError::LookupTimeout { name }),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_address_is_read_with_its_context_path() {
        for (text, expected) in [
            ("http://127.0.0.1:9000/auth", "http://127.0.0.1:9000/auth"),
            ("http://auth:9000/auth/", "http://auth:9000/auth"),
            ("http://auth", "http://auth"),
            ("http://[::1]:9000/a/b", "http://[::1]:9000/a/b"),
            (
                "dns://auth.internal:9000/auth",
                "dns://auth.internal:9000/auth",
            ),
            ("nacos://registry/auth", "nacos://registry:8848/auth"),
            (
                "nacos://me@[::1]:1/auth/?group=G&password-file=f",
                "nacos://[::1]:1/auth",
            ),
            ("nacos+https://a/auth", "nacos+https://a:8848/auth"),
            ("https://auth/auth", "https://auth/auth"),
            ("dns+https://auth:9000/a", "dns+https://auth:9000/a"),
        ] {
            let parsed: AuthServer = text.parse().unwrap();
            assert_eq!(parsed.to_string(), expected);
        }
    }
}
