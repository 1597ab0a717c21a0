//! One issuer, as flags or an `[[issuer]]` table describe it: its rules, and the source of its keys.

use std::fmt::Display;

use http::HeaderName;
use postern_http::host::host_port::{is_url, redacted};
use postern_http::host::server_url::ServerUrl;
use postern_process::exit::ExitError;
use postern_token::claims::mapping::ClaimMapping;
use postern_token::claims::name::ClaimName;
use postern_token::keys::Algorithm;
use postern_token::keys::algorithms::ASYMMETRIC;
use postern_token::policy::{Audience, RequiredIssuer, VerificationPolicy};
use postern_transport::tls::peer::{PeerFiles, PeerSettings};

use super::accepted::accepted;
use super::user_prefix::UserPrefix;
use super::{key_source, policy};
use crate::cli::ServeArgs;
use crate::cli::issuer_table::IssuerTable;
use crate::cli::key_args::RevocationMode;
use crate::config::flag_value::flag_error;
use crate::decision::reporting::WOULD_REJECT;
use crate::identity::field_name::plain_name;
use crate::identity::user_header::UserHeader;
use crate::issuers::IssuerSettings;
use crate::issuers::cache_file::KeyCacheSettings;
use crate::issuers::source::issuer_url::IssuerUrl;
use crate::issuers::source::key_set::{KeySetSettings, Location};
use crate::issuers::source::keys_proxy::KeysProxy;
use crate::issuers::source::{SourceSettings, kubernetes};

/// The name stands in labels of metrics and in names of files.
const MAX_NAME_BYTES: usize = 32;
const OWN_ISS: &str = "the iss of the auth server's tokens is required beside other issuers: \
                       `issuer` in a table with auth-server = true, or POSTERN_ISSUER";
/// The end of the file that replaces a key cache.
const RESERVED_NAME: &str = "new";

/// The description of one issuer, and the settings for all issuers.
pub(super) struct Description<'a> {
    table: IssuerTable,
    args: &'a ServeArgs,
    /// The accepted `iss`, of each tenant; empty where the auth server's is not checked, and
    /// where tokens have none.
    issuers: Vec<String>,
}

impl<'a> Description<'a> {
    /// Checks name and place of a table, and finds the accepted `iss`.
    ///
    /// # Errors
    /// [`ExitError::Config`] that names the flag or the table.
    pub(super) fn new(table: IssuerTable, args: &'a ServeArgs) -> Result<Self, ExitError> {
        let is_only = args.issuers.is_empty();
        if !is_only {
            check_name(&table.name)?;
        }
        let issuers = match &table.issuer {
            None if table.auth_server && is_only => Ok(Vec::new()),
            None if table.auth_server => Err(OWN_ISS.to_owned()),
            _ => accepted(&table),
        };
        let described = Self {
            issuers: issuers.map_err(|why| super::rejected(&table.name, why))?,
            table,
            args,
        };
        match described.misplaced() {
            Some(why) => Err(described.rejected(why)),
            None => Ok(described),
        }
    }

    /// Returns what is wrong with the table of an auth server.
    fn misplaced(&self) -> Option<&'static str> {
        let table = &self.table;
        let plain = IssuerTable {
            name: table.name.clone(),
            issuer: table.issuer.clone(),
            audience: table.audience.clone(),
            user_prefix: table.user_prefix.clone(),
            claim_header: table.claim_header.clone(),
            auth_server: true,
            ..IssuerTable::default()
        };
        let own = self.args.issuers.iter().filter(|table| table.auth_server);
        if !table.auth_server {
            None
        } else if own.count() > 1 {
            Some("there is one auth server, and another table has auth-server = true")
        } else if self.args.keys.auth_server.is_none() {
            Some("auth-server = true: no auth server is set")
        } else if *table != plain {
            Some(
                "with auth-server = true a table has name, issuer, audience, user-prefix and claim-header only",
            )
        } else {
            None
        }
    }

    pub(super) const fn table(&self) -> &IssuerTable {
        &self.table
    }

    /// Returns the name; `None` where flags describe the only issuer.
    pub(super) fn name(&self) -> Option<&str> {
        (!self.args.issuers.is_empty()).then_some(self.table.name.as_str())
    }

    /// Returns the accepted `iss`, of each tenant.
    pub(super) fn accepted(&self) -> &[String] {
        &self.issuers
    }

    /// Returns the rules for its tokens, for each accepted `iss`.
    pub(super) fn policies(&self) -> Result<Vec<VerificationPolicy>, ExitError> {
        let policy = VerificationPolicy {
            name: self.name().map(str::to_owned),
            audience: self.audience()?,
            mapping: self.mapping()?,
            issuer: match self.table.no_issuer {
                true => RequiredIssuer::Absent,
                false => RequiredIssuer::Any,
            },
            ..policy::common(&self.args.rules.tokens)
        };
        if self.issuers.is_empty() {
            return Ok(vec![policy]);
        }
        let of_issuer = |issuer: &String| VerificationPolicy {
            issuer: RequiredIssuer::Is(issuer.clone()),
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
        let keys = &self.args.keys;
        let is_required =
            self.table.auth_server && keys.revocations == Some(RevocationMode::Required);
        Ok(IssuerSettings {
            name: self.name().map(str::to_owned),
            key_cache: self.key_cache(&source)?,
            source,
            max_revocation_age: is_required.then(|| keys.max_revocation_age.duration()),
        })
    }

    fn rejected(&self, why: impl Display) -> ExitError {
        super::rejected(&self.table.name, why)
    }

    /// Rejects the value of a member, which may come from a flag.
    fn rejected_value(&self, member: &str, value: &str, why: impl Display) -> ExitError {
        ExitError::Config(format!("{} '{value}': {why}", self.setting(member)))
    }

    /// Returns the name of a member, or of the flag that says the same.
    fn setting(&self, member: &str) -> String {
        match (self.name(), member) {
            (Some(name), member) => format!("[[issuer]] {name}: {member}"),
            (None, "issuer") => "--issuer-url".to_owned(),
            (None, flag) => format!("--{flag}"),
        }
    }

    /// A key set serves every application of its issuer: without the audience a token for any of
    /// them would be accepted. The auth server knows the service by the names of its application.
    fn audience(&self) -> Result<Audience, ExitError> {
        let audiences = &self.table.audience;
        if audiences.is_empty() && self.table.auth_server {
            let app_name = Some(&self.args.rules.app_name).filter(|name| !name.is_empty());
            let own = self.args.keys.app_id.iter().chain(app_name);
            return Ok(Audience::OneOfOrNone(own.cloned().collect()));
        }
        if !audiences.is_empty() && !audiences.iter().any(String::is_empty) {
            return Ok(Audience::OneOf(audiences.clone()));
        }
        let given = audiences.join(",");
        Err(self.rejected_value(
            "audience",
            &given,
            "at least one is needed, none of them empty",
        ))
    }

    /// The auth server's tokens have the claims of the contract.
    fn mapping(&self) -> Result<Option<ClaimMapping>, ExitError> {
        if self.table.auth_server {
            return Ok(None);
        }
        let audience = self.table.audience_claim.iter().map(|claim| {
            let parsed: Result<ClaimName, _> = claim.parse();
            parsed.map_err(|error| self.rejected_value("audience-claim", claim, error))
        });
        let audience = audience.collect::<Result<Vec<_>, _>>()?;
        let of_table = self.table.claim.iter().flat_map(|(field, claims)| {
            let claims = claims.as_slice().iter();
            claims.map(move |claim| format!("{field}={claim}"))
        });
        let claims: Vec<_> = of_table
            .chain(self.args.rules.tokens.claim.clone())
            .collect();
        ClaimMapping::parse(claims.iter().map(String::as_str))
            .map(|mapping| Some(mapping.with_audience(audience)))
            .map_err(|(entry, error)| self.rejected_value("claim", entry, error))
    }

    /// Returns the settings of the key cache; keys of a file have none.
    fn key_cache(&self, source: &SourceSettings) -> Result<Option<KeyCacheSettings>, ExitError> {
        let Some(given) = &self.args.keys.key_cache else {
            return Ok(None);
        };
        let rejected = |why: &str| flag_error("key-cache", given.display(), why);
        if given.file_name().is_none() {
            return Err(rejected("is not the name of a file"));
        }
        let mut file = given.clone().into_os_string();
        if let Some(name) = self.name().filter(|_| !self.table.auth_server) {
            file.push(".");
            file.push(name);
        }
        let issuer = self.table.issuer_pattern.as_ref().or(self.issuers.first());
        source
            .cached_in(file.into(), issuer.cloned())
            .map_err(rejected)
    }

    fn source(&self) -> Result<SourceSettings, ExitError> {
        if self.table.auth_server {
            let mut settings = key_source::endpoint(self.args)?;
            settings.application.audience = self.audience()?;
            return Ok(SourceSettings::AuthServer(settings));
        }
        self.reject_without_effect()?;
        let settings = match self.is_kubernetes() {
            true => self.kubernetes(),
            false => self.key_set(self.location()?),
        };
        settings.map(SourceSettings::KeySet)
    }

    fn location(&self) -> Result<Location, ExitError> {
        let table = &self.table;
        match (&table.issuer, &table.jwks) {
            (_, Some(url)) if is_url(url) => self.address(url),
            (_, Some(file)) => Ok(Location::File(file.into())),
            (Some(issuer), None) => IssuerUrl::new(issuer)
                .map(|url| Location::Issuer(url, table.jwks_hosts.clone()))
                .map_err(|error| self.rejected_value("issuer", &redacted(issuer), error)),
            (None, None) => Err(self.rejected("names no source of keys")),
        }
    }

    pub(super) fn is_kubernetes(&self) -> bool {
        !self.table.auth_server && self.table.issuer.as_deref() == Some(kubernetes::ISSUER)
    }

    /// Rejects a table with no source of keys, or several, and members that the source ignores.
    fn reject_without_effect(&self) -> Result<(), ExitError> {
        let table = &self.table;
        let has_jwks = table.jwks.is_some() && !self.is_kubernetes();
        let sources = [table.discovery, has_jwks, self.is_kubernetes()];
        if sources.iter().filter(|given| **given).count() != 1 {
            return Err(self.rejected(format!(
                "expected one source of keys of discovery = true, jwks, or issuer = \"{}\"",
                kubernetes::ISSUER
            )));
        }
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
                kubernetes::ISSUER,
            ),
        ] {
            if given {
                return Err(self.rejected(format!("`{member}` has an effect only with {why}")));
            }
        }
        Ok(())
    }

    fn kubernetes(&self) -> Result<KeySetSettings, ExitError> {
        let url = self.table.jwks.as_deref();
        let settings = self.key_set(self.address(url.unwrap_or(kubernetes::JWKS_URL))?)?;
        if !settings.location.is_https() {
            return Err(self.rejected("`jwks` has to be https: the pod's token is sent there"));
        }
        let ca = settings.tls.ca;
        let token_file = self.table.token_file.clone();
        Ok(KeySetSettings {
            tls: PeerFiles {
                ca: ca.or_else(|| Some(kubernetes::CA_FILE.into())),
                ..settings.tls
            },
            bearer_file: Some(token_file.unwrap_or_else(|| kubernetes::TOKEN_FILE.into())),
            ..settings
        })
    }

    fn address(&self, url: &str) -> Result<Location, ExitError> {
        ServerUrl::from_http(url)
            .map(Location::Address)
            .map_err(|error| self.rejected_value("jwks", &redacted(url), error))
    }

    fn key_set(&self, location: Location) -> Result<KeySetSettings, ExitError> {
        Ok(KeySetSettings {
            tls: self.tls(location.is_https())?,
            proxy: self.keys_proxy(location.is_https())?,
            bearer_file: None,
            location,
            algorithms: self.algorithms(),
            max_key_age: self.args.keys.max_key_age.limit(),
        })
    }

    /// Each key says its algorithm itself; a table may allow fewer.
    fn algorithms(&self) -> Vec<Algorithm> {
        let named = &self.table.algorithms;
        let is_allowed = |one: &Algorithm| named.is_empty() || named.contains(one);
        ASYMMETRIC.into_iter().filter(is_allowed).collect()
    }

    /// Returns the certificates; without TLS they were meant for something else.
    fn tls(&self, is_https: bool) -> Result<PeerFiles, ExitError> {
        let Some(name) = self.name() else {
            let files = key_source::tls_files(self.args);
            return key_source::only_with_https(files, is_https).map_err(ExitError::Config);
        };
        let files = PeerFiles {
            settings: PeerSettings {
                ca: "ca",
                ..PeerSettings::default()
            },
            ca: self.table.ca.clone(),
            identity: None,
        };
        key_source::only_with_https(files, is_https).map_err(|why| super::rejected(name, why))
    }

    fn keys_proxy(&self, is_https: bool) -> Result<Option<KeysProxy>, ExitError> {
        let text = match self.table.keys_proxy.as_deref().map(str::trim) {
            // The API server of a cluster is inside of it.
            None if is_https && !self.is_kubernetes() => {
                return Ok(KeysProxy::from_environment(|name| std::env::var(name).ok()));
            }
            None | Some("none") => return Ok(None),
            Some(text) => text,
        };
        let why = match ServerUrl::from_http(text) {
            _ if !is_https => "has an effect only with https",
            Ok(proxy) if !proxy.is_https() && proxy.target() == "/" => {
                return Ok(Some(KeysProxy::from_table(proxy.with_query())));
            }
            _ => "expected none, or http://HOST:PORT without a path and without user information",
        };
        Err(self.rejected_value("keys-proxy", &redacted(text), why))
    }
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
