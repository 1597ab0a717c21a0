//! One issuer, as flags or an `[[issuer]]` table describe it: its rules, and the source of its keys.

use std::fmt::Display;
use std::path::PathBuf;

use http::HeaderName;
use http::uri::Scheme;
use runtime::net::host_port::without_credentials;
use runtime::process::exit::ExitError;
use runtime::tls::peer::{PeerFiles, PeerSettings};
use wire::keys::algorithms::AsymmetricAlgorithm;
use wire::token::claim_mapping::ClaimMapping;
use wire::token::claim_name::ClaimName;
use wire::token::verifier::VerificationPolicy;

use super::accepted::{KUBERNETES, accepted};
use super::user_prefix::UserPrefix;
use super::{key_source, policy};
use crate::cli::ServeArgs;
use crate::cli::issuer_table::IssuerTable;
use crate::config::flag_value::flag_error;
use crate::decision::reporting::WOULD_REJECT;
use crate::identity::field_name::plain_name;
use crate::identity::user_header::UserHeader;
use crate::issuers::IssuerSettings;
use crate::issuers::cache::KeyCacheSettings;
use crate::issuers::jwks_address::JwksAddress;
use crate::issuers::kubernetes;
use crate::issuers::proxy::KeysProxy;
use crate::issuers::source::SourceSettings;
use crate::issuers::source::file::KeyFile;
use crate::issuers::source::issuer_url::{DiscoverySettings, IssuerUrl};
use crate::issuers::source::jwks_url::JwksUrlSettings;

/// The name stands in labels of metrics and in names of files.
const MAX_NAME_BYTES: usize = 32;
/// The end of the file that replaces a key cache.
const RESERVED_NAME: &str = "new";

/// The description of one issuer, and the settings for all issuers.
pub(super) struct Description<'a> {
    /// The members of a table, or those that would say what the flags do.
    table: IssuerTable,
    args: &'a ServeArgs,
    /// The accepted `iss`, of each tenant; empty where the auth server's is not checked.
    issuers: Vec<String>,
    /// Fields of the user, each as `FIELD=CLAIM`.
    claims: Vec<String>,
    /// Certificates for the way to the keys.
    tls: PeerFiles,
    /// The file of the key cache.
    cache: Option<PathBuf>,
}

impl<'a> Description<'a> {
    /// Describes the issuer of a table. Checks the name, and finds the accepted `iss`.
    ///
    /// # Errors
    /// [`ExitError::Config`] that names the table.
    pub(super) fn of_table(table: &IssuerTable, args: &'a ServeArgs) -> Result<Self, ExitError> {
        check_name(&table.name)?;
        let claims = table.claim.iter().flat_map(|(field, claims)| {
            let claims = claims.as_slice().iter();
            claims.map(move |claim| format!("{field}={claim}"))
        });
        let cache = args.keys.key_cache.as_ref().map(|file| {
            let mut file = file.clone().into_os_string();
            file.push(".");
            file.push(&table.name);
            file.into()
        });
        Ok(Self {
            table: table.clone(),
            args,
            issuers: accepted(table).map_err(|why| super::rejected(&table.name, why))?,
            claims: claims.collect(),
            tls: PeerFiles {
                settings: PeerSettings {
                    ca: "ca",
                    ..PeerSettings::default()
                },
                ca: table.ca.clone(),
                identity: None,
            },
            cache,
        })
    }

    /// Describes the issuer of the flags, if they name a source of keys.
    ///
    /// # Errors
    /// [`ExitError::Config`] that names a flag.
    pub(super) fn of_flags(args: &'a ServeArgs) -> Result<Option<Self>, ExitError> {
        let Some(table) = args.issuer_of_flags() else {
            return Ok(None);
        };
        if !args.issuers.is_empty() {
            check_name(&table.name)?;
        }
        Ok(Some(Self {
            issuers: table.issuer.iter().cloned().collect(),
            table,
            args,
            claims: args.rules.tokens.claim.clone(),
            tls: key_source::tls_files(args),
            cache: args.keys.key_cache.clone(),
        }))
    }

    pub(super) const fn table(&self) -> &IssuerTable {
        &self.table
    }

    /// Returns the name of an issuer beside others whose `iss` is not known.
    pub(super) fn without_iss(&self) -> Option<&str> {
        self.name().filter(|_| self.issuers.is_empty())
    }

    /// Returns the name; `None` where flags describe the only issuer.
    pub(super) fn name(&self) -> Option<&str> {
        (!self.args.issuers.is_empty()).then_some(self.table.name.as_str())
    }

    fn is_of_flags(&self) -> bool {
        self.table.auth_server || self.args.issuers.is_empty()
    }

    /// Returns the accepted `iss`, of each tenant.
    pub(super) fn accepted(&self) -> &[String] {
        &self.issuers
    }

    /// Returns the rules for its tokens, for each accepted `iss`.
    pub(super) fn policies(&self) -> Result<Vec<VerificationPolicy>, ExitError> {
        let policy = VerificationPolicy {
            audiences: self.audiences()?,
            mapping: self.mapping()?,
            ..policy::common(&self.args.rules.tokens)
        };
        if self.issuers.is_empty() {
            return Ok(vec![policy]);
        }
        let of_issuer = |issuer: &String| VerificationPolicy {
            issuer: Some(issuer.clone()),
            ..policy.clone()
        };
        Ok(self.issuers.iter().map(of_issuer).collect())
    }

    /// Returns the only header of its tokens; `None` for the usual places.
    pub(super) fn token_header(
        &self,
        identity: &UserHeader,
    ) -> Result<Option<HeaderName>, ExitError> {
        let Some(text) = self.table.token_header.as_deref() else {
            return Ok(None);
        };
        let rejected = |why: &dyn Display| self.rejected(format!("token-header '{text}': {why}"));
        let name = plain_name(text).map_err(|error| rejected(&error))?;
        if identity.is_alias(name.as_str()) || name == *WOULD_REJECT {
            return Err(rejected(&"the sidecar sends it to the service"));
        }
        Ok(Some(name))
    }

    /// Returns the prefix of its users.
    pub(super) fn user_prefix(&self) -> UserPrefix<'_> {
        let mut names = ["id", "account"].into_iter();
        UserPrefix {
            issuer: &self.table.name,
            given: self.table.user_prefix.as_deref(),
            is_cluster: self.is_kubernetes(),
            are_mapped: names.any(|name| self.table.claim.contains_key(name)),
        }
    }

    /// Returns the settings of its task.
    pub(super) fn settings(&self) -> Result<IssuerSettings, ExitError> {
        let source = self.source()?;
        let revocations = key_source::revocations(&self.args.revocations);
        Ok(IssuerSettings {
            name: self.name().map(str::to_owned),
            key_cache: self.key_cache(&source)?,
            source,
            revocations: revocations.filter(|_| self.table.auth_server),
        })
    }

    fn rejected(&self, why: impl Display) -> ExitError {
        super::rejected(&self.table.name, why)
    }

    /// Rejects the value of a member, which may come from a flag.
    fn rejected_value(&self, member: &str, value: &str, why: impl Display) -> ExitError {
        if !self.is_of_flags() {
            return self.rejected(format!("{member} '{value}': {why}"));
        }
        let flag = match member {
            "issuer" => "issuer-url",
            other => other,
        };
        flag_error(flag, value, why)
    }

    /// A key set serves every application of its issuer: without the audience a token for any of
    /// them would be accepted. The auth server's tokens may have none.
    fn audiences(&self) -> Result<Vec<String>, ExitError> {
        let audiences = &self.table.audience;
        let is_missing = audiences.is_empty() && !self.table.auth_server;
        if !is_missing && !audiences.iter().any(String::is_empty) {
            return Ok(audiences.clone());
        }
        let given = audiences.join(",");
        Err(self.rejected_value("audience", &given, "is missing, or one of it is empty"))
    }

    /// The auth server's tokens have the claims of the contract.
    fn mapping(&self) -> Result<Option<ClaimMapping>, ExitError> {
        if self.table.auth_server {
            return Ok(None);
        }
        let audience = self.table.audience_claim.as_deref();
        let audience = audience.map(|claim| {
            let parsed: Result<ClaimName, _> = claim.parse();
            parsed.map_err(|error| self.rejected_value("audience-claim", claim, error))
        });
        let audience = audience.transpose()?;
        ClaimMapping::parse(self.claims.iter().map(String::as_str))
            .map(|mapping| Some(mapping.with_audience(audience)))
            .map_err(|(entry, error)| self.rejected_value("claim", entry, error))
    }

    /// Returns the settings of the key cache; of a table none for keys of a file.
    fn key_cache(&self, source: &SourceSettings) -> Result<Option<KeyCacheSettings>, ExitError> {
        let (Some(given), Some(file)) = (&self.args.keys.key_cache, &self.cache) else {
            return Ok(None);
        };
        let rejected = |why: &str| flag_error("key-cache", given.display(), why);
        if given.file_name().is_none() {
            return Err(rejected("is not the name of a file"));
        }
        let issuer = self.table.issuer_pattern.as_ref().or(self.issuers.first());
        match source.cached_in(file.clone(), issuer.cloned()) {
            Err(why) if self.is_of_flags() => Err(rejected(why)),
            cached => Ok(cached.ok()),
        }
    }

    fn source(&self) -> Result<SourceSettings, ExitError> {
        let table = &self.table;
        if table.auth_server {
            return key_source::endpoint(self.args).map(SourceSettings::AuthServer);
        }
        self.reject_without_effect()?;
        if self.is_kubernetes() {
            return self.kubernetes().map(SourceSettings::JwksUrl);
        }
        match (&table.issuer, &table.jwks) {
            (Some(issuer), None) if table.discovery => {
                self.discovery(issuer).map(SourceSettings::IssuerUrl)
            }
            (_, Some(url)) if is_url(url) => self.jwks_url(url).map(SourceSettings::JwksUrl),
            (_, Some(file)) => {
                self.tls(None)?;
                Ok(SourceSettings::File(KeyFile {
                    path: file.into(),
                    algorithms: self.algorithms(),
                }))
            }
            (_, None) => Err(self.rejected("names no source of keys")),
        }
    }

    pub(super) fn is_kubernetes(&self) -> bool {
        !self.is_of_flags() && self.table.issuer.as_deref() == Some(KUBERNETES)
    }

    /// Rejects a table with no source of keys, or several, and members that the source ignores.
    fn reject_without_effect(&self) -> Result<(), ExitError> {
        let table = &self.table;
        let has_jwks = table.jwks.is_some() && !self.is_kubernetes();
        let sources = [table.discovery, has_jwks, self.is_kubernetes()];
        if sources.iter().filter(|given| **given).count() != 1 {
            return Err(self.rejected(format!(
                "expected one source of keys of discovery = true, jwks, or issuer = \"{KUBERNETES}\""
            )));
        }
        let is_file = table.jwks.as_deref().is_some_and(|jwks| !is_url(jwks));
        for (member, given, why) in [
            (
                "discovery",
                table.discovery && table.issuer.is_none(),
                "`issuer`",
            ),
            (
                "jwks-hosts",
                !table.jwks_hosts.is_empty() && !table.discovery,
                "discovery",
            ),
            (
                "token-file",
                table.token_file.is_some() && !self.is_kubernetes(),
                KUBERNETES,
            ),
            ("keys-proxy", table.keys_proxy.is_some() && is_file, "https"),
        ] {
            if given {
                return Err(self.rejected(format!("`{member}` has an effect only with {why}")));
            }
        }
        Ok(())
    }

    fn kubernetes(&self) -> Result<JwksUrlSettings, ExitError> {
        let url = self.table.jwks.as_deref();
        let settings = self.jwks_url(url.unwrap_or(kubernetes::JWKS_URL))?;
        if !settings.url.is_https() {
            return Err(self.rejected("`jwks` has to be https: the pod's token is sent there"));
        }
        let ca = settings
            .tls
            .ca
            .unwrap_or_else(|| kubernetes::CA_FILE.into());
        let token_file = self.table.token_file.clone();
        Ok(JwksUrlSettings {
            tls: PeerFiles {
                ca: Some(ca),
                ..settings.tls
            },
            bearer_file: Some(token_file.unwrap_or_else(|| kubernetes::TOKEN_FILE.into())),
            ..settings
        })
    }

    fn discovery(&self, issuer: &str) -> Result<DiscoverySettings, ExitError> {
        let issuer = IssuerUrl::new(issuer)
            .map_err(|error| self.rejected_value("issuer", &without_credentials(issuer), error))?;
        let scheme = issuer.document().scheme().clone();
        Ok(DiscoverySettings {
            hosts: self.table.jwks_hosts.clone(),
            tls: self.tls(Some(&scheme))?,
            proxy: self.keys_proxy(&scheme)?,
            issuer,
            algorithms: self.algorithms(),
            max_key_age: self.args.keys.max_key_age.limit(),
        })
    }

    fn jwks_url(&self, url: &str) -> Result<JwksUrlSettings, ExitError> {
        let url: JwksAddress = url
            .parse()
            .map_err(|error| self.rejected_value("jwks", &without_credentials(url), error))?;
        Ok(JwksUrlSettings {
            tls: self.tls(Some(url.scheme()))?,
            proxy: self.keys_proxy(url.scheme())?,
            bearer_file: None,
            url,
            algorithms: self.algorithms(),
            max_key_age: self.args.keys.max_key_age.limit(),
        })
    }

    /// Each key says its algorithm itself; a table may allow fewer.
    fn algorithms(&self) -> Vec<AsymmetricAlgorithm> {
        match self.table.algorithms.as_slice() {
            [] => AsymmetricAlgorithm::all().collect(),
            algorithms => algorithms.to_vec(),
        }
    }

    /// Returns the certificates; without TLS they were meant for something else.
    fn tls(&self, scheme: Option<&Scheme>) -> Result<PeerFiles, ExitError> {
        match key_source::unused(&self.tls, scheme) {
            None => Ok(self.tls.clone()),
            Some(setting) if self.is_of_flags() => Err(key_source::without_tls(setting)),
            Some(_) => Err(self.rejected("`ca` has an effect only with https")),
        }
    }

    fn keys_proxy(&self, scheme: &Scheme) -> Result<Option<KeysProxy>, ExitError> {
        let Some(text) = self.table.keys_proxy.as_deref() else {
            return Ok(None);
        };
        if *scheme != Scheme::HTTPS {
            return Err(self.rejected("`keys-proxy` has an effect only with https"));
        }
        text.parse().map(Some).map_err(|error| {
            let text = without_credentials(text);
            self.rejected(format!("keys-proxy '{text}': {error}"))
        })
    }
}

/// Returns true if a set of keys is fetched from an address; else it is a file.
fn is_url(jwks: &str) -> bool {
    jwks.contains("://")
}

fn check_name(name: &str) -> Result<(), ExitError> {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    if name == RESERVED_NAME {
        return Err(super::rejected(
            name,
            "the name belongs to a file of the key cache",
        ));
    }
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    let name = name.escape_debug();
    Err(ExitError::Config(format!(
        "[[issuer]] name '{name}': expected 1 to {MAX_NAME_BYTES} of a-z, 0-9, - and _"
    )))
}
