//! The source of the keys: the auth server, the key set of any issuer, or a file. All keys of a
//! fetch are validated before any is trusted.

pub(crate) mod auth_server;
pub(crate) mod file;
pub(crate) mod issuer_url;
pub(crate) mod jwks_url;

use std::path::PathBuf;

use aws_lc_rs::digest::{SHA256, digest};
use runtime::files::file_watch::run_blocking;
use runtime::process::exit::ExitError;
use wire::keys::Algorithm;
use wire::keys::signing_type::SigningType;

use self::auth_server::{Application, EndpointSettings, KeyEndpointSource};
use self::file::KeyFile;
use self::issuer_url::{Discovered, DiscoverySettings};
use self::jwks_url::{JwksUrl, JwksUrlSettings};
use super::cache::{CacheScope, KeyCacheSettings};
use super::fetch::{FetchError, Fetched, Purpose};
use super::jwks::jws;
use super::revocations::FetchedList;

/// The settings of one source.
#[derive(Debug, Clone)]
pub(crate) enum SourceSettings {
    AuthServer(EndpointSettings),
    IssuerUrl(DiscoverySettings),
    JwksUrl(JwksUrlSettings),
    File(KeyFile),
}

impl SourceSettings {
    /// Returns the flag of the source.
    pub(crate) const fn flag(&self) -> &'static str {
        match self {
            Self::AuthServer(_) => "auth-server",
            Self::IssuerUrl(_) => "issuer-url",
            Self::JwksUrl(_) | Self::File(_) => "jwks",
        }
    }

    /// Returns true if credentials or keys could be changed on the way.
    pub(crate) fn is_plain_over_a_network(&self) -> bool {
        match self {
            Self::AuthServer(settings) => settings.auth_server.is_plain_over_a_network(),
            Self::JwksUrl(settings) => settings.url.is_plain_over_a_network(),
            // Plain HTTP stays on this machine.
            Self::IssuerUrl(_) | Self::File(_) => false,
        }
    }

    /// Returns the settings of a cache in `file`, for tokens of `issuer`.
    ///
    /// # Errors
    /// A source that cannot have a cache.
    pub(crate) fn cached_in(
        &self,
        file: PathBuf,
        issuer: Option<String>,
    ) -> Result<KeyCacheSettings, &'static str> {
        let (address, application, allowed) = match self {
            Self::AuthServer(settings) if settings.signing_type == SigningType::Hmac => {
                return Err("with --signing-type hmac the key is a secret, which is never written");
            }
            Self::AuthServer(settings) => (
                settings.auth_server.to_string(),
                Some(settings.application.id.clone()),
                vec![settings.signing_type.algorithm()],
            ),
            Self::IssuerUrl(settings) => {
                let address = settings.issuer.document().with_query();
                (address, None, jws(&settings.algorithms))
            }
            Self::JwksUrl(settings) => (settings.url.with_query(), None, jws(&settings.algorithms)),
            Self::File(_) => return Err("has an effect only where keys are fetched from a server"),
        };
        Ok(KeyCacheSettings {
            file,
            origin: CacheScope {
                source: self.to_string(),
                address_sha256: sha256_hex(&address),
                application,
                issuer,
                algorithms: names_of(&allowed),
            },
            allowed,
        })
    }

    /// Returns true if a password goes unencrypted to a registry.
    pub(crate) fn shows_password(&self) -> bool {
        match self {
            Self::AuthServer(settings) => settings.auth_server.shows_password(),
            Self::IssuerUrl(_) | Self::JwksUrl(_) | Self::File(_) => false,
        }
    }
}

/// Renders the name for the log, without query and secret.
impl std::fmt::Display for SourceSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AuthServer(settings) => settings.auth_server.fmt(f),
            Self::IssuerUrl(settings) => settings.issuer.fmt(f),
            Self::JwksUrl(settings) => settings.url.fmt(f),
            Self::File(file) => file.fmt(f),
        }
    }
}

fn sha256_hex(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    let bytes = digest.as_ref().iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

fn names_of(algorithms: &[Algorithm]) -> Vec<String> {
    let algorithms = algorithms.iter();
    algorithms.map(|named| format!("{named:?}")).collect()
}

/// One source of keys, and its state between fetches.
#[derive(Debug)]
pub(crate) enum KeySource {
    AuthServer(Box<KeyEndpointSource>),
    IssuerUrl(Box<Discovered>),
    JwksUrl(Box<JwksUrl>),
    File(KeyFile),
    /// Files of one of several issuers that could not be used yet.
    Unopened(Box<SourceSettings>),
}

impl KeySource {
    /// Opens the source.
    ///
    /// # Errors
    /// [`ExitError::Config`] for TLS files, or a file of keys, that cannot be used.
    pub(crate) fn new(settings: SourceSettings) -> Result<Self, ExitError> {
        Ok(match settings {
            SourceSettings::AuthServer(settings) => {
                Self::AuthServer(Box::new(KeyEndpointSource::new(settings)?))
            }
            SourceSettings::IssuerUrl(settings) => {
                Self::IssuerUrl(Box::new(Discovered::new(settings)?))
            }
            SourceSettings::JwksUrl(settings) => Self::JwksUrl(Box::new(JwksUrl::new(settings)?)),
            SourceSettings::File(file) => {
                // A wrong path fails at once; later the last good keys stay.
                file.read()
                    .map_err(|error| ExitError::Config(format!("--jwks: {error}")))?;
                Self::File(file)
            }
        })
    }

    /// Opens the source of one of several issuers. Files that cannot be used are read again at each
    /// fetch: the other issuers need none of them.
    pub(crate) fn of_several(settings: SourceSettings) -> Self {
        match settings {
            SourceSettings::File(file) => Self::File(file),
            settings => {
                let opened = Self::new(settings.clone());
                opened.unwrap_or_else(|_| Self::Unopened(Box::new(settings)))
            }
        }
    }

    /// Returns a warning about an expired certificate.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Self::AuthServer(endpoint) => endpoint.transport().warning(),
            Self::IssuerUrl(issuer) => issuer.transport().warning(),
            Self::JwksUrl(url) => url.transport().warning(),
            Self::File(_) | Self::Unopened(_) => None,
        }
    }

    /// Returns the seconds by which the clock of the last server is ahead of this machine's.
    pub(crate) fn clock_ahead(&self) -> Option<i64> {
        match self {
            Self::AuthServer(endpoint) => endpoint.transport().clock_ahead(),
            Self::IssuerUrl(issuer) => issuer.transport().clock_ahead(),
            Self::JwksUrl(url) => url.transport().clock_ahead(),
            Self::File(_) | Self::Unopened(_) => None,
        }
    }

    /// Returns the last endpoint; before the first fetch the configured one.
    pub(crate) fn last_endpoint(&self) -> String {
        match self {
            Self::AuthServer(endpoint) => endpoint.last_endpoint(),
            Self::IssuerUrl(issuer) => issuer.last_endpoint(),
            Self::JwksUrl(url) => url.to_string(),
            Self::File(file) => file.to_string(),
            Self::Unopened(settings) => settings.to_string(),
        }
    }

    /// Fetches the revocation list alone, where one is known.
    pub(crate) async fn fetch_revocations(&mut self) {
        if let Self::AuthServer(endpoint) = self {
            endpoint.fetch_revocations().await;
        }
    }

    /// Takes the revocation list of the last fetch.
    pub(crate) fn take_revocations(&mut self) -> FetchedList {
        match self {
            Self::AuthServer(endpoint) => endpoint.take_revocations(),
            _ => FetchedList::NotRequested,
        }
    }

    /// Names the lines of the list that the next fetch need not bring.
    pub(crate) fn set_list_cursor(&mut self, cursor: Option<String>) {
        if let Self::AuthServer(endpoint) = self {
            endpoint.set_list_cursor(cursor);
        }
    }

    /// Sets the credentials for later fetches.
    pub(crate) fn set_credentials(&mut self, application: Application) {
        match self {
            Self::AuthServer(endpoint) => endpoint.set_credentials(application),
            Self::Unopened(settings) => {
                if let SourceSettings::AuthServer(settings) = &mut **settings {
                    settings.application = application;
                }
            }
            Self::IssuerUrl(_) | Self::JwksUrl(_) | Self::File(_) => {}
        }
    }

    /// Fetches once, without retries.
    pub(crate) async fn fetch(&mut self, purpose: Purpose) -> Result<Fetched, FetchError> {
        if let Self::Unopened(settings) = self {
            let settings = SourceSettings::clone(settings);
            let opened = run_blocking(move || Self::new(settings)).await;
            *self = opened.map_err(FetchError::File)?;
        }
        match self {
            Self::AuthServer(endpoint) => endpoint.fetch().await.map(Fetched::Keys),
            Self::IssuerUrl(issuer) => issuer.fetch(purpose).await,
            Self::JwksUrl(url) => url.fetch(purpose).await,
            Self::File(file) => {
                let file = file.clone();
                let read = run_blocking(move || file.read()).await;
                read.map(Fetched::Keys).map_err(FetchError::File)
            }
            Self::Unopened(settings) => Err(FetchError::File(settings.to_string())),
        }
    }
}
