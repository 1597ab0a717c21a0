//! The validated configuration. Each error names its flag.

use std::net::SocketAddr;
use std::sync::Arc;

use postern_process::clock::unix_now;
use postern_process::command_line::{exposed_secrets, given};
use postern_process::exit::ExitError;
use postern_token::keys::signing_type::SigningType;
use postern_token::times::moment;
use postern_transport::tls::{HTTP_2_OR_1, RequestedCertificates, ServerTls};

use crate::cli::{Cli, ServeArgs};
use crate::config::live::Rules;
use crate::discovery::AuthServer;
use crate::issuers::IssuerSettings;
use crate::issuers::cache_file::KeyCacheSettings;
use crate::issuers::source::SourceSettings;
use crate::issuers::token_cache::TokenCacheConfig;
use crate::upstream::{UpstreamSettings, UpstreamTls};

mod access_rules;
mod dotted_claims;
mod flag_value;
pub(crate) mod issuers;
mod key_source;
pub(crate) mod live;
mod policy;
pub(crate) mod probes;
mod reporting;
mod upstream;
mod user_header;

use self::flag_value::flag_error;
use self::policy::{auth_policy, upstream_request};
use self::probes::ServiceProbe;
use self::upstream::{
    exposure, reject_own_address, require_pod_ip, upstream_address, upstream_tls,
};

pub(crate) use access_rules::{examples, path_of};

const REPORTING_ENDED: &str =
    "is past, and requests without a valid token are rejected: take it and --enforce report out";

/// Memory for verified tokens: some 30,000 of them.
const TOKEN_CACHE_BYTES: usize = 16 * 1024 * 1024;

/// The settings of `serve`, and what they stand for.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) args: ServeArgs,
    /// `None`: plain HTTP.
    pub(crate) tls: Option<Arc<ServerTls>>,
    /// About patterns and rules, and expired certificates.
    setting_warnings: Vec<String>,
    /// The service's probes that the admin port forwards.
    pub(crate) probes: Vec<ServiceProbe>,
    /// The service's port on the pod's address, and whether an exposed service prevents readiness.
    pub(crate) exposure: Option<(SocketAddr, bool)>,
    pub(crate) rules: Rules,
    pub(crate) upstream: UpstreamSettings,
    /// At least one.
    pub(crate) issuers: Vec<IssuerSettings>,
    /// The auth server whose list alone is in use.
    pub(crate) list_source: Option<IssuerSettings>,
    pub(crate) token_cache: TokenCacheConfig,
}

impl Config {
    /// # Errors
    /// [`ExitError::Config`] with one line that names the flag and what is wrong with its value.
    pub(crate) fn new(args: &ServeArgs) -> Result<Self, ExitError> {
        let mut issuers = issuers::settings(args)?;
        let upstream = upstream_address(&args.service)?;
        reject_own_address(args, "upstream", &upstream)?;
        require_pod_ip(args)?;
        let listening = &args.listening;
        postern_transport::net::listener::require_two(listening.listen, listening.admin_listen)?;
        let clients = RequestedCertificates {
            mode: listening.client_cert.client_cert,
            ca: listening.client_ca.clone(),
        };
        let has_client_certificates = clients != RequestedCertificates::default();
        let tls = listening.tls.server(clients, HTTP_2_OR_1)?;
        let upstream_tls = upstream_tls(args, &upstream)?;
        let sources_of_keys = std::mem::take(&mut issuers.sources);
        let list_source = issuers.list_source.take();
        let auth_policy = auth_policy(&args.rules, &upstream, has_client_certificates, issuers)?;
        policy::check_certificate_field(args, &auth_policy.user_header)?;
        let mut setting_warnings = policy::open_to_all(&auth_policy.interceptor);
        setting_warnings.extend(access_rules::warnings(&args.rules, &auth_policy));
        setting_warnings.extend(dotted_claims::warnings(args));
        setting_warnings.extend(policy::joined_members_warnings(&args.rules));
        setting_warnings.extend(policy::resources_without_audience(&auth_policy));
        setting_warnings.extend(upstream_tls.as_ref().and_then(UpstreamTls::unverified));
        let now = unix_now();
        if let Some(tls) = &tls {
            setting_warnings.extend(tls.ending(now));
        }
        if let Some(tls) = &upstream_tls {
            setting_warnings.extend(tls.ending_certificate(now));
        }
        reporting::check(args, auth_policy.reporting_until, now)?;
        policy::reject_idle_cookie_origins(&args.rules.tokens, auth_policy.interceptor.sources())?;
        let rules = Rules {
            auth_policy,
            upstream_request: upstream_request(&args.rules.upstream_request),
            access_log: args.access.access_log,
            logged_user: args.access.access_log_user,
            settings: given::<Cli>(&args.printable()?),
        };
        Ok(Self {
            tls,
            setting_warnings,
            probes: probes::service_probes(args, &upstream, &rules.auth_policy.user_header)?,
            exposure: exposure(args, &upstream),
            rules,
            upstream: UpstreamSettings {
                connect_timeout: args.limits.upstream_connect_timeout.duration(),
                read_timeout: args.limits.upstream_read_timeout.limit(),
                tls: upstream_tls,
                address: upstream,
            },
            token_cache: TokenCacheConfig {
                // One bound for all of them: each set of keys has a cache of its own.
                bytes: TOKEN_CACHE_BYTES / sources_of_keys.len().max(1),
                ..TokenCacheConfig::default()
            },
            issuers: sources_of_keys,
            list_source,
            args: args.clone(),
        })
    }

    /// Returns the sources of keys for the log.
    pub(crate) fn keys_from(&self) -> String {
        self.sources()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn sources(&self) -> impl Iterator<Item = &SourceSettings> {
        self.issuers.iter().map(|issuer| &issuer.source)
    }

    /// Returns warnings: settings that work, but may not be intended.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<_> = self.warnings_of_settings().map(str::to_owned).collect();
        if let Err(ended) = self.reject_ended_reporting(unix_now()) {
            warnings.push(ended.to_string());
        }
        warnings.extend_from_slice(&self.setting_warnings);
        warnings
    }

    /// Returns [`Config::warnings`] and those about command line and environment, which no reload
    /// changes.
    pub(crate) fn warnings_at_the_start(&self) -> Vec<String> {
        let mut warnings = self.warnings();
        warnings.extend(exposed_secrets::<Cli>());
        warnings.extend(self.sources().find_map(SourceSettings::proxy_warning));
        let mut caches = self.issuers.iter().filter_map(|it| it.key_cache.as_ref());
        warnings.extend(caches.find_map(KeyCacheSettings::warning));
        warnings
    }

    /// Rejects an end of report-only mode that is past at `now`: `serve` would start and reject.
    ///
    /// # Errors
    /// [`ExitError::Config`]
    pub(crate) fn reject_ended_reporting(&self, now: i64) -> Result<(), ExitError> {
        match self.rules.auth_policy.report_only_ended_at(now) {
            None => Ok(()),
            Some(until) => Err(flag_error("report-until", moment(until), REPORTING_ENDED)),
        }
    }

    fn warnings_of_settings(&self) -> impl Iterator<Item = &'static str> {
        let policy = &self.rules.auth_policy;
        let own_server = self.sources().find_map(SourceSettings::auth_server);
        let list_server = match &self.list_source {
            Some(list) => list.source.auth_server(),
            None => None,
        };
        let flag_warnings = [
            (
                self.args.rules.tokens.allow_no_exp,
                "--allow-no-exp: a token without an expiry is accepted forever",
            ),
            (
                self.args.rules.tokens.accept_bound_tokens,
                "--accept-bound-tokens: a stolen token counts without the key that it is bound to",
            ),
            (
                policy.report_only_until(unix_now()).is_some(),
                "--enforce report: requests without a valid token reach the service",
            ),
            (
                self.rules.upstream_request.reuse_after_body,
                "--upstream-reuse-after-body: a service that does not read a body parses it as the next request",
            ),
            (
                !policy.resources.is_empty() && self.rules.upstream_request.forward_authorization,
                "--resource: the service gets the tokens of clients, which MCP forbids: --forward-authorization off",
            ),
            (
                policy
                    .resources
                    .iter()
                    .any(|resource| !resource.names_server),
                "--resource: without an issuer that is a URL its metadata names no server that issues tokens",
            ),
            (
                self.args.keys.signing_type == Some(SigningType::Hmac),
                "--signing-type hmac: a reader of this process's memory can issue tokens",
            ),
            (
                own_server.is_some_and(AuthServer::is_plain_over_a_network),
                "--auth-server: the application secret and the key travel there in plain HTTP",
            ),
            (
                list_server.is_some_and(AuthServer::is_plain_over_a_network),
                "--revocations-from: plain HTTP, the list can be replaced on the way",
            ),
            (
                own_server
                    .or(list_server)
                    .is_some_and(AuthServer::shows_password),
                "nacos: the registry's password travels there in plain HTTP",
            ),
            (
                self.sources().any(SourceSettings::has_plain_key_set),
                "--jwks: plain HTTP, keys can be replaced on the way",
            ),
        ];
        flag_warnings
            .into_iter()
            .filter_map(|(is_on, warning)| is_on.then_some(warning))
    }
}

#[cfg(test)]
mod tests;
