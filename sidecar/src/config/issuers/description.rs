//! One issuer, as flags or an `[[issuer]]` table describe it: its rules, and the source of its keys.

use std::fmt::Display;

use http::HeaderName;
use postern_http::host::host_port::redacted;
use postern_process::exit::ExitError;
use postern_token::claims::mapping::ClaimMapping;
use postern_token::keys::Algorithm;
use postern_token::keys::algorithms::ASYMMETRIC;
use postern_token::policy::{Audience, BoundTokens, RequiredIssuer, VerificationPolicy};
use postern_transport::http_client::proxy::KeysProxy;
use postern_transport::issuer::document::IssuerUrl;
use postern_transport::issuer::key_set::{KeySetSettings, Location};
use postern_transport::tls::peer::PeerFiles;
use postern_transport::tls::peer_settings::PeerSettings;

use super::accepted::accepted_issuers;
use super::key_source;
use super::user_prefix::UserPrefix;
use crate::cli::ServeArgs;
use crate::cli::issuer_members::{Asymmetric, Dpop, KeysWay};
use crate::cli::issuer_table::IssuerTable;
use crate::cli::key_args::RevocationMode;
use crate::config::flag_value::flag_error;
use crate::decision::reporting::WOULD_REJECT;
use crate::identity::user_header::UserHeader;
use crate::issuers::IssuerSettings;
use crate::issuers::cache_file::KeyCacheSettings;
use crate::issuers::source::{SourceSettings, kubernetes};
use postern_process::command_line::texts::Text;

const OWN_ISS: &str = "the iss of the auth server's tokens is required beside other issuers: \
                       `issuer` in a table with auth-server = true, or POSTERN_ISSUER";
/// The description of one issuer, and the settings for all issuers.
pub(super) struct Description<'a> {
    table: IssuerTable,
    args: &'a ServeArgs,
    /// The accepted `iss`, of each tenant; empty where the auth server's is not checked, and
    /// where tokens have none.
    issuers: Vec<String>,
}

impl<'a> Description<'a> {
    /// Checks the place of a table, and finds the accepted `iss`.
    ///
    /// # Errors
    /// [`ExitError::Config`] that names the flag or the table.
    pub(super) fn new(table: IssuerTable, args: &'a ServeArgs) -> Result<Self, ExitError> {
        let issuers = match &table.issuer {
            None if table.auth_server && args.issuers.is_empty() => Ok(Vec::new()),
            None if table.auth_server => Err(OWN_ISS.to_owned()),
            _ => accepted_issuers(&table),
        };
        let described = Self {
            issuers: issuers.map_err(|why| super::table_error(table.name.as_str(), why))?,
            table,
            args,
        };
        match described.auth_server_mistake() {
            Some(why) => Err(described.error(why)),
            None => Ok(described),
        }
    }

    /// Returns what is wrong with the table of an auth server.
    fn auth_server_mistake(&self) -> Option<&'static str> {
        let table = &self.table;
        let plain = IssuerTable {
            name: table.name.clone(),
            issuer: table.issuer.clone(),
            audience: table.audience.clone(),
            dpop: table.dpop.clone(),
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
        // Compared whole: a member that tables get later is rejected here as well.
        } else if *table != plain {
            Some(
                "with auth-server = true a table has name, issuer, audience, dpop, user-prefix and claim-header only",
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
        if self.args.issuers.is_empty() {
            None
        } else {
            Some(self.table.name.as_str())
        }
    }

    /// Returns the accepted `iss`, of each tenant.
    pub(super) fn accepted_issuers(&self) -> &[String] {
        &self.issuers
    }

    /// Returns the rules for its tokens, for each accepted `iss`.
    pub(super) fn policies(&self) -> Result<Vec<VerificationPolicy>, ExitError> {
        let tokens = &self.args.rules.tokens;
        let policy = VerificationPolicy {
            leeway_seconds: tokens.leeway.get(),
            accept_no_expiry: tokens.allow_no_exp,
            bound_tokens: if tokens.accept_bound_tokens {
                BoundTokens::Unchecked
            } else {
                BoundTokens::Checked
            },
            name: self.name().map(str::to_owned),
            requires_proof: self.requires_proof()?,
            audience: self.audience()?,
            mapping: self.mapping()?,
            issuer: if self.table.no_issuer {
                RequiredIssuer::Absent
            } else {
                RequiredIssuer::Any
            },
            ..VerificationPolicy::default()
        };
        if self.issuers.is_empty() {
            return Ok(vec![policy]);
        }
        let mut policies = Vec::new();
        for issuer in &self.issuers {
            policies.push(VerificationPolicy {
                issuer: RequiredIssuer::Is(issuer.clone()),
                ..policy.clone()
            });
        }
        Ok(policies)
    }

    /// Returns true if its tokens need a proof. Where `--resource` is set they may have one.
    fn requires_proof(&self) -> Result<bool, ExitError> {
        match self.table.dpop.as_deref() {
            Some(_) if !self.args.rules.takes_proofs() => Err(self.error(
                "`dpop` needs --resource, with whose URL proofs are compared, and excludes --accept-bound-tokens",
            )),
            Some(Dpop::Required) if self.table.token_header.is_some() => Err(self.error(
                "`dpop` and `token-header` exclude each other: only Authorization has proofs",
            )),
            mode => Ok(mode == Some(&Dpop::Required)),
        }
    }

    /// Returns the only header of its tokens; `None` for the usual places.
    pub(super) fn token_header(
        &self,
        identity: &UserHeader,
    ) -> Result<Option<HeaderName>, ExitError> {
        match &self.table.token_header {
            None => Ok(None),
            Some(field)
                if identity.is_alias(field.name.as_str()) || field.name == *WOULD_REJECT =>
            {
                Err(self.error(format!(
                    "token-header '{}': the sidecar sends it to the service",
                    field.as_str()
                )))
            }
            Some(field) => Ok(Some(field.name.clone())),
        }
    }

    /// Returns the prefix of its users.
    pub(super) fn user_prefix(&self) -> UserPrefix<'_> {
        let mut mapped = self.table.claim.iter().flatten();
        UserPrefix {
            issuer: self.table.name.as_str(),
            given: self.table.user_prefix.as_ref().map(Text::as_str),
            is_cluster: self.table.is_kubernetes(),
            are_mapped: mapped.any(|(field, _)| field.is_required()),
        }
    }

    /// Returns the settings of its task.
    pub(super) fn settings(&self) -> Result<IssuerSettings, ExitError> {
        let source = self.source()?;
        let keys = &self.args.keys;
        let has_list = self.table.auth_server || keys.revocations_from.is_some();
        Ok(IssuerSettings {
            name: self.name().map(str::to_owned),
            key_cache: self.key_cache(&source)?,
            source,
            max_revocation_age: match keys.revocations {
                Some(RevocationMode::Required) if has_list => {
                    Some(keys.max_revocation_age.duration())
                }
                _ => None,
            },
        })
    }

    fn error(&self, why: impl Display) -> ExitError {
        super::table_error(self.table.name.as_str(), why)
    }

    /// A key set serves every application of its issuer: without the audience a token for any of
    /// them would be accepted. The auth server knows the service by the names of its application.
    fn audience(&self) -> Result<Audience, ExitError> {
        match &self.table.audience {
            Some(audiences) => Ok(Audience::OneOf(audiences.texts())),
            None if self.table.auth_server => {
                let mut own = Vec::from_iter(self.args.keys.app_id.clone());
                if !self.args.rules.app_name.is_empty() {
                    own.push(self.args.rules.app_name.clone());
                }
                Ok(Audience::OneOfOrNone(own))
            }
            None => Err(self.error("`audience`: at least one is needed")),
        }
    }

    /// The auth server's tokens have the claims of the contract.
    fn mapping(&self) -> Result<Option<ClaimMapping>, ExitError> {
        if self.table.auth_server {
            return Ok(None);
        }
        let mapping = match &self.table.claim {
            Some(claims) if claims.is_empty() => {
                return Err(self.error("claim: is empty: list at least one"));
            }
            Some(claims) => {
                let fields = claims.iter();
                ClaimMapping::new(fields.map(|(it, claims)| (**it, claims.values())).collect())
            }
            None => ClaimMapping::parse(self.args.rules.tokens.claim.iter().map(String::as_str))
                .map_err(|(entry, error)| flag_error("claim", entry, error))?,
        };
        let audience = match &self.table.audience_claim {
            Some(claims) => claims.values(),
            None => Vec::new(),
        };
        Ok(Some(mapping.with_audience(audience)))
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
        // One file for each; the auth server's keeps its name when tables come beside it.
        let file = match self.name() {
            Some(name) if !self.table.auth_server => super::cache_of(given, name),
            _ => given.clone(),
        };
        let issuer = match &self.table.issuer_pattern {
            Some(pattern) => Some(pattern.as_str().to_owned()),
            None => self.issuers.first().cloned(),
        };
        source.cached_in(file, issuer).map_err(rejected)
    }

    fn source(&self) -> Result<SourceSettings, ExitError> {
        if self.table.auth_server {
            let mut settings = key_source::endpoint(self.args)?;
            if let Some(application) = &mut settings.application {
                application.audience = self.audience()?;
            }
            return Ok(SourceSettings::AuthServer(settings));
        }
        let location = self.location()?;
        self.reject_unused_members(&location)?;
        Ok(SourceSettings::KeySet(KeySetSettings {
            tls: self.tls(location.is_https())?,
            proxy: self.keys_proxy(location.is_https()),
            bearer_file: match &self.table.token_file {
                _ if !self.table.is_kubernetes() => None,
                None => Some(kubernetes::TOKEN_FILE.into()),
                file => file.clone(),
            },
            location,
            setting: self.name().map_or("--jwks", |_| "jwks"),
            algorithms: self.algorithms(),
            max_key_age: self.args.keys.max_key_age.limit(),
        }))
    }

    /// Returns the one place of the keys.
    fn location(&self) -> Result<Location, ExitError> {
        let (table, is_kubernetes) = (&self.table, self.table.is_kubernetes());
        match (table.discovery, &table.jwks) {
            (false, Some(jwks)) if is_kubernetes && !jwks.is_https() => {
                Err(self.error("`jwks` has to be https: the pod's token is sent there"))
            }
            // Any other address is the operator's choice: plain HTTP is a warning, no error.
            (false, Some(jwks)) => Ok(Location::clone(jwks)),
            (false, None) if is_kubernetes => kubernetes::JWKS_URL
                .parse()
                .map_err(|error: String| self.error(error)),
            (true, None) if !is_kubernetes => self.discovery_location(),
            _ => Err(self.error(format!(
                "expected one source of keys of discovery = true, jwks, or issuer = \"{}\"",
                kubernetes::ISSUER
            ))),
        }
    }

    fn discovery_location(&self) -> Result<Location, ExitError> {
        let Some(issuer) = &self.table.issuer else {
            return Err(self.error("`discovery` has an effect only with `issuer`"));
        };
        let hosts = match &self.table.jwks_hosts {
            Some(hosts) => hosts.texts(),
            None => Vec::new(),
        };
        match IssuerUrl::new(issuer.as_str()) {
            Ok(url) => Ok(Location::Issuer(url, hosts)),
            Err(error) => {
                let issuer = redacted(issuer.as_str());
                Err(match self.name() {
                    Some(_) => self.error(format!("issuer '{issuer}': {error}")),
                    None => flag_error("issuer-url", issuer, error),
                })
            }
        }
    }

    /// Rejects members that the source of the keys ignores.
    fn reject_unused_members(&self, location: &Location) -> Result<(), ExitError> {
        let (table, is_https) = (&self.table, location.is_https());
        let why = if table.jwks_hosts.is_some() && !table.discovery {
            "`jwks-hosts` has an effect only with discovery"
        } else if table.token_file.is_some() && !table.is_kubernetes() {
            "`token-file` has an effect only with kubernetes:///"
        } else if table.ca.is_some() && !is_https {
            "`ca` has an effect only with https"
        } else if table.keys_proxy.is_some() && !is_https {
            "`keys-proxy` has an effect only with https"
        } else {
            return Ok(());
        };
        Err(self.error(why))
    }

    /// Each key says its algorithm itself; a table may allow fewer.
    fn algorithms(&self) -> Vec<Algorithm> {
        let Some(allowed) = &self.table.algorithms else {
            return ASYMMETRIC.to_vec();
        };
        let allowed = allowed.values();
        let mut algorithms = ASYMMETRIC.to_vec();
        algorithms.retain(|one| allowed.contains(&Asymmetric(*one)));
        algorithms
    }

    /// Returns the certificates of the table, or of the flags, which need https.
    fn tls(&self, is_https: bool) -> Result<PeerFiles, ExitError> {
        let mut files = match self.name() {
            None => key_source::only_with_https(key_source::tls_files(self.args), is_https)?,
            Some(_) => PeerFiles {
                settings: PeerSettings {
                    ca: "ca",
                    ..PeerSettings::default()
                },
                ca: self.table.ca.clone(),
                identity: None,
            },
        };
        // The API server's certificate is of the cluster's own authority, which each pod has.
        if self.table.is_kubernetes() && files.ca.is_none() {
            files.ca = Some(kubernetes::CA_FILE.into());
        }
        Ok(files)
    }

    fn keys_proxy(&self, is_https: bool) -> Option<KeysProxy> {
        match self.table.keys_proxy.as_deref() {
            Some(KeysWay::Direct) => None,
            Some(KeysWay::Proxy(url)) => Some(KeysProxy::from_table(url.with_query())),
            // The API server of a cluster is inside of it.
            None if self.table.is_kubernetes() || !is_https => None,
            None => KeysProxy::from_environment(|name| std::env::var(name).ok()),
        }
    }
}
