//! The validated configuration. Each error names its flag.

use std::net::SocketAddr;
use std::sync::Arc;

use postern_process::command_line::given;
use postern_process::exit::ExitError;
use postern_token::times::moment;
use postern_transport::tls::{HTTP_2_OR_1, RequestedCertificates, ServerTls};

use crate::cli::{Cli, ServeArgs};
use crate::config::live::Rules;
use crate::issuers::IssuerSettings;
use crate::issuers::source::SourceSettings;
use crate::issuers::token_cache::TokenCacheConfig;
use crate::upstream::UpstreamSettings;

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
mod warnings;

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
        let auth_policy = auth_policy(args, &upstream, has_client_certificates, issuers)?;
        let rules = Rules {
            auth_policy,
            upstream_request: upstream_request(&args.rules.upstream_request),
            access_log: args.access.access_log,
            logged_user: args.access.access_log_user,
            settings: given::<Cli>(&args.printable()?),
        };
        Ok(Self {
            tls,
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
}

#[cfg(test)]
mod tests;
