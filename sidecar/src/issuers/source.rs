//! The source of the keys: the auth server, or the key set of any issuer. All keys of a fetch are
//! validated before any is trusted.

pub(crate) mod auth_server;
pub(crate) mod fetch;
mod key_response;
pub(crate) mod kubernetes;

use std::path::PathBuf;
use std::time::Duration;

use data_encoding::HEXLOWER;
use postern_token::digest::sha256;
use postern_token::keys::Algorithm;
use postern_transport::http_client::ClientSettings;
use postern_transport::issuer::Purpose;
use postern_transport::issuer::key_set::{KeySetSettings, KeySetSource, Location};
use postern_transport::tls::peer_settings::PeerSettings;

use self::auth_server::{Application, EndpointSettings, KeyEndpointSource};
use self::fetch::{FetchError, Fetched};
use super::cache_file::{KeyCacheSettings, KeysOrigin};
use super::revocations::fetched_list::FetchedList;
use crate::discovery::AuthServer;

/// Timeout from connecting to the last byte; two requests fit into the minute between ticks.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a connection is kept for another request of the same fetch, which follows at
/// once: ten thousand sidecars that wait for their tick hold no connection.
const KEPT: Duration = Duration::from_millis(100);

/// Returns the settings of requests for keys.
fn key_client() -> ClientSettings {
    ClientSettings {
        named: PeerSettings::without_key(
            "--auth-ca, or `ca` of the [[issuer]],",
            "--auth-client-cert",
        ),
        files: "certificates for the auth server",
        kept: KEPT,
        user_agent: Some(concat!("postern-sidecar/", env!("CARGO_PKG_VERSION"))),
        is_traced: true,
        timeout: TIMEOUT,
        ..ClientSettings::default()
    }
}

/// The settings of one source.
#[derive(Debug, Clone)]
pub(crate) enum SourceSettings {
    AuthServer(EndpointSettings),
    KeySet(KeySetSettings),
}

impl SourceSettings {
    pub(crate) const fn auth_server(&self) -> Option<&AuthServer> {
        match self {
            Self::AuthServer(settings) => Some(&settings.auth_server),
            Self::KeySet(_) => None,
        }
    }

    /// Returns true if keys could be replaced on the way. A discovery document over plain HTTP is of
    /// this machine.
    pub(crate) fn has_plain_key_set(&self) -> bool {
        match self {
            Self::AuthServer(_) => false,
            Self::KeySet(settings) => match settings.location.first() {
                Some(url) => url.is_plain_over_a_network(),
                None => false,
            },
        }
    }

    /// Returns the warning of a proxy that the environment names.
    pub(crate) fn proxy_warning(&self) -> Option<String> {
        match self {
            Self::AuthServer(_) => None,
            Self::KeySet(settings) => settings.proxy.as_ref()?.warning(),
        }
    }

    /// Returns true for an auth server whose keys verify no token.
    pub(crate) const fn is_list_alone(&self) -> bool {
        matches!(self, Self::AuthServer(settings) if settings.application.is_none())
    }

    /// Returns true where a revocation list is fetched with the keys.
    pub(crate) const fn wants_list(&self) -> bool {
        matches!(self, Self::AuthServer(settings) if settings.wants_list)
    }

    /// Returns the flag of the source.
    pub(crate) const fn flag(&self) -> &'static str {
        match self {
            Self::AuthServer(_) => "auth-server",
            Self::KeySet(settings) if matches!(settings.location, Location::Issuer(..)) => {
                "issuer-url"
            }
            Self::KeySet(_) => "jwks",
        }
    }

    /// Returns the settings of a cache in `file`, for tokens of `issuer`; `None` for keys of a file.
    ///
    /// # Errors
    /// A source that cannot have a cache.
    pub(crate) fn cached_in(
        &self,
        file: PathBuf,
        issuer: Option<String>,
    ) -> Result<Option<KeyCacheSettings>, &'static str> {
        let (address, application, allowed) = match self {
            Self::AuthServer(settings) if settings.algorithms() == [Algorithm::HS256] => {
                return Err("with --signing-type hmac the key is a secret, which is never written");
            }
            Self::AuthServer(settings) => (
                settings.auth_server.to_string(),
                settings.application.as_ref().map(|it| it.id.clone()),
                settings.algorithms(),
            ),
            Self::KeySet(settings) => match settings.location.first() {
                Some(address) => (address.with_query(), None, settings.algorithms.clone()),
                None => return Ok(None),
            },
        };
        Ok(Some(KeyCacheSettings {
            file,
            origin: KeysOrigin {
                source: self.to_string(),
                sha256: HEXLOWER.encode(&sha256(format!(
                    "{address:?} {application:?} {issuer:?} {allowed:?}"
                ))),
            },
            allowed,
        }))
    }
}

/// Renders the name for the log, without query and secret.
impl std::fmt::Display for SourceSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AuthServer(settings) => settings.auth_server.fmt(f),
            Self::KeySet(settings) => settings.location.fmt(f),
        }
    }
}

/// One source of keys, and its state between fetches.
#[derive(Debug)]
pub(crate) enum KeySource {
    AuthServer(Box<KeyEndpointSource>),
    KeySet(Box<KeySetSource>),
}

impl KeySource {
    pub(crate) fn new(settings: SourceSettings) -> Self {
        match settings {
            SourceSettings::AuthServer(settings) => {
                Self::AuthServer(Box::new(KeyEndpointSource::new(settings)))
            }
            SourceSettings::KeySet(settings) => {
                Self::KeySet(Box::new(KeySetSource::new(settings, key_client())))
            }
        }
    }

    /// Reads TLS files, or the file of keys, before the first fetch, which reads them again. Returns
    /// a warning about an expired certificate.
    ///
    /// # Errors
    /// The setting, the file, and what is wrong with it.
    pub(super) fn open(&mut self) -> Result<Option<String>, String> {
        match self {
            Self::AuthServer(endpoint) => endpoint.client.open(),
            Self::KeySet(set) => set.open(),
        }
    }

    /// Returns true for keys of a file.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Self::KeySet(set) if set.is_file())
    }

    /// Returns the seconds by which the clock of the last server is ahead of this machine's.
    pub(crate) fn clock_ahead(&self) -> Option<i64> {
        match self {
            Self::AuthServer(endpoint) => endpoint.client.clock_ahead(),
            Self::KeySet(set) => set.clock_ahead(),
        }
    }

    /// Returns the last endpoint; before the first fetch the configured one.
    pub(crate) fn last_endpoint(&self) -> String {
        match self {
            Self::AuthServer(endpoint) => endpoint.last_endpoint(),
            Self::KeySet(set) => set.last_endpoint(),
        }
    }

    /// Fetches the lines of the revocation list after `cursor` alone, where a list is known.
    pub(crate) async fn fetch_list(&mut self, cursor: Option<&str>) -> FetchedList {
        match self {
            Self::AuthServer(endpoint) => endpoint.fetch_list(cursor).await,
            Self::KeySet(_) => FetchedList::NotRequested,
        }
    }

    /// Sets the credentials for later fetches.
    pub(crate) fn set_credentials(&mut self, application: Option<Application>) {
        if let Self::AuthServer(endpoint) = self {
            endpoint.settings.application = application;
        }
    }

    /// Fetches once, without retries.
    pub(crate) async fn fetch(
        &mut self,
        purpose: Purpose,
        cursor: Option<&str>,
    ) -> Result<Fetched, FetchError> {
        match self {
            Self::AuthServer(endpoint) => endpoint.fetch(cursor).await,
            Self::KeySet(set) => Ok(Fetched {
                keys: set.fetch(purpose).await?,
                list: FetchedList::NotRequested,
                warning: None,
            }),
        }
    }
}
