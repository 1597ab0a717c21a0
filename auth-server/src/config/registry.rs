//! `--registry` and `--advertise`: registration of this server in Nacos, and its advertised address
//! (contract §1).
//!
//! Readiness does not depend on the registry: clients that find this server in another way must not lose it,
//! and clients that use the registry keep their last list.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use postern_http::host::host_port::host_and_port;
use postern_http::host::loopback::is_loopback;
use postern_http::path::patterns::ContextPath;
use postern_process::exit::ExitError;
use registry::{Instance, RegistrySettings};

use crate::cli::ServeArgs;

const FLAG: &str = "--registry";
const NONE: &str = "none";

#[derive(Debug, Clone)]
pub(crate) struct RegistryConfig {
    pub(crate) settings: RegistrySettings,
    pub(crate) advertised: Advertised,
}

/// The address for other hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Advertised {
    host: String,
    /// The advertised port; `None` for the port of `--listen`.
    port: Option<u16>,
}

const MALFORMED: &str = "expected HOST:PORT, or HOST for the port that is listened on";
const UNSPECIFIED: &str = "no client can connect to an unspecified address";
const MISSING: &str =
    "needed with --registry, because others cannot reach what --listen names: HOST:PORT";

impl RegistryConfig {
    /// Returns `None` if this server is not registered.
    ///
    /// # Errors
    /// [`ExitError::Config`], one line that names the flag and repeats no password.
    pub(crate) fn from_args(args: &ServeArgs) -> Result<Option<Self>, ExitError> {
        let url = &args.registration.registry;
        let rejected = |error| ExitError::Config(format!("--advertise: {error}"));
        // An unusable value is an error without a registry too.
        let advertised = match &args.registration.advertise {
            Some(text) => Some(Advertised::parse(text).map_err(rejected)?),
            None => None,
        };
        if url == NONE {
            return Ok(None);
        }
        let settings = RegistrySettings::for_server(url)
            .map_err(|error| ExitError::Config(format!("{FLAG}: {error}")))?;
        Ok(Some(Self {
            settings: settings.configured(FLAG)?,
            advertised: match advertised {
                Some(advertised) => advertised,
                None => Advertised::from_listen(args.listening.listen).map_err(rejected)?,
            },
        }))
    }
}

impl Advertised {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Self::reachable(address.to_string(), None);
        }
        let (host, port) = host_and_port(text).ok_or(MALFORMED)?;
        Self::reachable(host.to_owned(), port.filter(|port| *port != 0))
    }

    /// Returns the address of `--listen` if other hosts can reach it.
    fn from_listen(listen: SocketAddr) -> Result<Self, &'static str> {
        if listen.ip().is_unspecified() || is_loopback(listen.ip()) {
            return Err(MISSING);
        }
        Self::reachable(listen.ip().to_string(), None)
    }

    fn reachable(host: String, port: Option<u16>) -> Result<Self, &'static str> {
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        if host.is_empty() {
            return Err(MALFORMED);
        }
        if address.is_ok_and(|address| address.is_unspecified()) {
            return Err(UNSPECIFIED);
        }
        Ok(Self { host, port })
    }

    /// Returns the entry of a server on `port`. `secure` is Spring Cloud's word for TLS.
    pub(crate) fn instance(&self, port: u16, context: &ContextPath, secure: bool) -> Instance {
        let metadata = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("context-path", context.as_str()),
            ("secure", if secure { "true" } else { "false" }),
        ];
        Instance {
            metadata: BTreeMap::from(metadata.map(|(name, value)| (name, value.to_owned()))),
            ..Instance::new(&self.host, self.port.unwrap_or(port))
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn what_others_reach_is_an_address_or_a_name() {
        for (text, entry) in [
            ("10.0.0.1:9000", "10.0.0.1:9000"),
            ("10.0.0.1", "10.0.0.1:7"),
            ("10.0.0.1:0", "10.0.0.1:7"),
            ("auth-1.internal:9000", "auth-1.internal:9000"),
            ("[fd00::1]:9000", "[fd00::1]:9000"),
            ("[fd00::1]", "[fd00::1]:7"),
            ("fd00::1", "[fd00::1]:7"),
            // Explicit, for a demonstration on one machine.
            ("127.0.0.1", "127.0.0.1:7"),
        ] {
            let advertised = Advertised::parse(text).unwrap();
            let context = "/auth".parse().unwrap();
            let instance = advertised.instance(7, &context, false);
            assert_eq!(instance.authority(), entry, "{text}");
            assert_eq!(instance.metadata["context-path"], "/auth");
            assert_eq!(instance.metadata["secure"], "false");
        }
    }

    #[test]
    fn what_no_client_can_reach_is_rejected() {
        for (text, why) in [
            ("", MALFORMED),
            (":9000", MALFORMED),
            ("a:b", MALFORMED),
            ("a:70000", MALFORMED),
            ("user@a:1", MALFORMED),
            ("http://a:1", MALFORMED),
            ("0.0.0.0:9000", UNSPECIFIED),
            ("[::]:9000", UNSPECIFIED),
            ("::", UNSPECIFIED),
        ] {
            assert_eq!(Advertised::parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn a_listen_address_is_advertised_only_if_others_reach_it() {
        for (listen, advertised) in [
            ("10.0.0.1:9000", Ok("10.0.0.1:7")),
            ("[fd00::1]:9000", Ok("[fd00::1]:7")),
            ("0.0.0.0:9000", Err(MISSING)),
            ("[::]:9000", Err(MISSING)),
            ("127.0.0.1:9000", Err(MISSING)),
            ("[::1]:9000", Err(MISSING)),
            ("[::ffff:127.0.0.1]:9000", Err(MISSING)),
        ] {
            let found = Advertised::from_listen(listen.parse().unwrap());
            let context = "/auth".parse().unwrap();
            let found = found.map(|it| it.instance(7, &context, false).authority());
            assert_eq!(found, advertised.map(ToOwned::to_owned), "{listen}");
        }
    }
}
