//! Warnings: settings that work, but may not be intended.

use postern_contract::interceptor::Interceptor;
use postern_process::clock::unix_now;
use postern_process::command_line::texts::Text;
use postern_process::command_line::{exposed_secrets, joined_members};
use postern_token::keys::signing_type::SigningType;

use super::{Config, access_rules, dotted_claims};
use crate::cli::Cli;
use crate::cli::policy_args::RulesArgs;
use crate::decision::policy::AuthPolicy;
use crate::decision::protected_resource::ProtectedResource;
use crate::discovery::AuthServer;
use crate::issuers::cache_file::KeyCacheSettings;
use crate::issuers::source::SourceSettings;
use crate::upstream::UpstreamTls;

/// Paths that no pattern lists on purpose.
const UNLISTED: [&str; 2] = ["/postern-probe", "/postern-probe/2/3/4.x"];

impl Config {
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

    /// Returns the warnings about settings that may change at a reload.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let (args, auth_policy, now) = (&self.args, &self.rules.auth_policy, unix_now());
        let mut warnings = self.lax_rules(now);
        warnings.extend(self.unsafe_sources());
        if let Err(ended) = self.reject_ended_reporting(now) {
            warnings.push(ended.to_string());
        }
        warnings.extend(open_to_all(&auth_policy.interceptor));
        warnings.extend(access_rules::warnings(&args.rules, auth_policy));
        warnings.extend(dotted_claims::warnings(args));
        warnings.extend(members_in_one(&args.rules));
        warnings.extend(resources_without_audience(auth_policy));
        let upstream_tls = self.upstream.tls.as_ref();
        warnings.extend(upstream_tls.and_then(UpstreamTls::unverified));
        warnings.extend(self.tls.as_ref().and_then(|tls| tls.ending(now)));
        warnings.extend(upstream_tls.and_then(|tls| tls.ending_certificate(now)));
        warnings
    }

    /// Returns warnings about rules that weaken the protection of the service.
    fn lax_rules(&self, now: i64) -> Vec<String> {
        let (tokens, policy) = (&self.args.rules.tokens, &self.rules.auth_policy);
        let upstream_request = self.rules.upstream_request;
        let mut warnings = Vec::new();
        let mut warn = |warning: &str| warnings.push(warning.to_owned());
        if tokens.allow_no_exp {
            warn("--allow-no-exp: a token without an expiry is accepted forever");
        }
        if tokens.accept_bound_tokens {
            warn(
                "--accept-bound-tokens: a stolen token counts without the key that it is bound to",
            );
        }
        if policy.report_only_until(now).is_some() {
            warn("--enforce report: requests without a valid token reach the service");
        }
        if upstream_request.reuse_after_body {
            warn(
                "--upstream-reuse-after-body: a service that does not read a body parses it as the next request",
            );
        }
        if !policy.resources.is_empty() && upstream_request.forward_authorization {
            warn(
                "--resource: the service gets the tokens of clients, which MCP forbids: --forward-authorization off",
            );
        }
        let mut resources = policy.resources.iter();
        if resources.any(|resource| !resource.names_server) {
            warn(
                "--resource: without an issuer that is a URL its metadata names no server that issues tokens",
            );
        }
        warnings
    }

    /// Returns warnings about sources of keys and lists that others may read or replace.
    fn unsafe_sources(&self) -> Vec<String> {
        let own_server = self.sources().find_map(SourceSettings::auth_server);
        let list_source = self.list_source.as_ref();
        let list_server = list_source.and_then(|list| list.source.auth_server());
        let mut warnings = Vec::new();
        let mut warn = |warning: &str| warnings.push(warning.to_owned());
        if self.args.keys.signing_type == Some(SigningType::Hmac) {
            warn("--signing-type hmac: a reader of this process's memory can issue tokens");
        }
        if own_server.is_some_and(AuthServer::is_plain_over_a_network) {
            warn("--auth-server: the application secret and the key travel there in plain HTTP");
        }
        if list_server.is_some_and(AuthServer::is_plain_over_a_network) {
            warn("--revocations-from: plain HTTP, the list can be replaced on the way");
        }
        let server = own_server.or(list_server);
        if server.is_some_and(AuthServer::shows_password) {
            warn("nacos: the registry's password travels there in plain HTTP");
        }
        if self.sources().any(SourceSettings::has_plain_key_set) {
            warn("--jwks: plain HTTP, keys can be replaced on the way");
        }
        warnings
    }
}

/// Returns a warning for each list that opens every path, if only for some methods.
fn open_to_all(interceptor: &Interceptor) -> Vec<String> {
    let mut warnings = Vec::new();
    for (flag, list) in [
        ("public-path", interceptor.pass_list()),
        ("optional-auth-path", interceptor.optional()),
    ] {
        if UNLISTED.iter().all(|path| list.matches(path)) {
            warnings.push(format!(
                "--{flag}: its patterns match every path, which needs no token"
            ));
        }
    }
    warnings
}

/// Warns of members of lists that are several.
fn members_in_one(args: &RulesArgs) -> Vec<String> {
    let mut warnings = joined_members("audience", args.tokens.audience.iter().map(Text::as_str));
    for (flag, members) in [
        ("claim", &args.tokens.claim),
        ("claim-header", &args.identity.claim_header),
    ] {
        warnings.extend(joined_members(flag, members.iter().map(String::as_str)));
    }
    warnings
}

/// Returns a warning for each resource that no audience is: MCP clients request a token for just
/// this URL (RFC 8707).
fn resources_without_audience(policy: &AuthPolicy) -> Vec<String> {
    let mut warnings = Vec::new();
    for ProtectedResource { url, .. } in &*policy.resources {
        let audience = std::slice::from_ref(url);
        let mut issuers = policy.issuers.iter();
        if !issuers.any(|issuer| issuer.policy.audience.accepts(audience)) {
            warnings.push(format!(
                "--resource {url}: no audience is this URL, for which clients request tokens"
            ));
        }
    }
    warnings
}
