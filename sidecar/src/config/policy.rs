//! The rules for requests, and for the heads that the service gets.

use std::sync::Arc;

use postern_contract::interceptor::Interceptor;
use postern_contract::settings;
use postern_http::cors::AllowedOrigins;
use postern_http::host::host_port::redacted;
use postern_http::path::patterns::{ContextPath, PassList};
use postern_process::clock::unix_now;
use postern_process::exit::ExitError;
use postern_process::files::secret_file;
use postern_token::keys::algorithms;
use postern_token::possession::nonces::NonceKeys;
use postern_token::sources::TokenSources;

use super::access_rules::access_rules;
use super::flag_value::flag_error;
use super::issuers::AllIssuers;
use super::reporting::{self, reporting_until};
use crate::cli::ServeArgs;
use crate::cli::policy_args::{RulesArgs, TokenArgs};
use crate::cli::service_args::UpstreamRequestArgs;
use crate::decision::policy::{AuthPolicy, PossessionPolicy};
use crate::decision::protected_resource::{BoundTokenSupport, ProtectedResource};
use crate::identity::user_header::UserHeader;
use crate::upstream::UpstreamAddress;
use crate::upstream::service_request::UpstreamRequestPolicy;

/// Bound on the value of `Authorization`. Tokens of large directories list hundreds of groups.
const MAX_AUTHORIZATION_BYTES: usize = 16 * 1024;

/// Returns the authorization rules, for the tokens of `issuers`.
///
/// # Errors
/// As [`super::Config::new`].
pub(super) fn auth_policy(
    args: &ServeArgs,
    upstream: &UpstreamAddress,
    has_client_certificates: bool,
    settings: AllIssuers,
) -> Result<AuthPolicy, ExitError> {
    let AllIssuers {
        issuers,
        client_issuers,
        user_header,
        ..
    } = settings;
    let interceptor = interceptor(&args.rules)?;
    let access_rules = access_rules(&args.rules, &issuers, interceptor.pass_list())?;
    let mut rules =
        AuthPolicy::new(interceptor, issuers, user_header).with_access_rules(access_rules);
    rules.reporting_until = reporting_until(&args.rules.enforcement)?;
    rules.possession = possession(&args.rules)?;
    rules.carries_websockets = !upstream.speaks_http_2();
    // Last: their metadata list the scopes of the rules above.
    rules.resources = resources(
        &args.rules,
        &client_issuers,
        &rules,
        has_client_certificates,
    )?;
    check_certificate_field(args, &rules.user_header)?;
    reporting::check(args, rules.reporting_until, unix_now())?;
    reject_idle_cookie_origins(&args.rules.tokens, rules.interceptor.sources())?;
    Ok(rules)
}

fn possession(args: &RulesArgs) -> Result<PossessionPolicy, ExitError> {
    let nonces = match &args.tokens.dpop_nonce_key_file {
        None => None,
        Some(file) if args.takes_proofs() => match NonceKeys::parse(&secret_file::read(file)?) {
            Ok(keys) => Some(keys),
            Err(why) => return Err(flag_error("dpop-nonce-key-file", file.display(), why)),
        },
        Some(file) => {
            let why = "has an effect only with --resource, and without --accept-bound-tokens";
            return Err(flag_error("dpop-nonce-key-file", file.display(), why));
        }
    };
    Ok(PossessionPolicy {
        certificate_field: args.tokens.client_cert_header.as_deref().cloned(),
        nonces,
        seen: Arc::default(),
    })
}

fn resources(
    args: &RulesArgs,
    issuers: &[String],
    policy: &AuthPolicy,
    has_client_certificates: bool,
) -> Result<Arc<[ProtectedResource]>, ExitError> {
    let rules = (&policy.access_rules, policy.interceptor.context());
    let mut all_issuers = policy.issuers.iter();
    let bound_tokens = BoundTokenSupport {
        dpop_signing_alg_values_supported: if args.takes_proofs() {
            algorithms::asymmetric_names().into()
        } else {
            Vec::new()
        },
        dpop_bound_access_tokens_required: all_issuers.all(|issuer| issuer.policy.requires_proof),
        tls_client_certificate_bound_access_tokens: policy.possession.certificate_field.is_some()
            || has_client_certificates,
    };
    let mut resources = Vec::new();
    for url in &args.resource {
        match ProtectedResource::new(url, issuers, rules, bound_tokens.clone()) {
            Ok(resource) => resources.push(resource),
            Err(error) => return Err(flag_error("resource", redacted(url), error)),
        }
    }
    Ok(resources.into())
}

/// Rejects a field for clients' certificates without a proxy that may send it, and one that the service gets from here.
fn check_certificate_field(args: &ServeArgs, identity: &UserHeader) -> Result<(), ExitError> {
    let Some(field) = &args.rules.tokens.client_cert_header else {
        return Ok(());
    };
    let why = if args.access.trusted_proxy.is_empty() {
        "needs --trusted-proxy, the network of the proxies that send it"
    } else if identity.is_alias(field.as_str()) {
        "the sidecar sends it to the service"
    } else {
        return Ok(());
    };
    Err(flag_error("client-cert-header", field.as_str(), why))
}

fn interceptor(args: &RulesArgs) -> Result<Interceptor, ExitError> {
    Ok(Interceptor::new(
        context_path(&args.app_name)?,
        patterns("public-path", &args.public_path)?,
        MAX_AUTHORIZATION_BYTES,
    )
    .with_allowed_origins(AllowedOrigins::new(args.cors_origin.clone()))
    .with_optional(patterns("optional-auth-path", &args.optional_auth_path)?)
    .with_sources(TokenSources {
        // The tables of the issuers name them.
        headers: Vec::new(),
        cookie: args.tokens.token_cookie.clone(),
        cookie_origins: AllowedOrigins::new(args.tokens.cookie_origin.clone()),
        websocket_protocol: args.tokens.websocket_token,
        takes_proofs: args.takes_proofs(),
    }))
}

/// Returns the rules for request heads.
pub(super) const fn upstream_request(args: &UpstreamRequestArgs) -> UpstreamRequestPolicy {
    UpstreamRequestPolicy {
        forward_authorization: args.forward_authorization,
        reuse_after_body: args.upstream_reuse_after_body,
        forwarded: args.forwarded,
    }
}

fn patterns(flag: &str, pieces: &[String]) -> Result<PassList, ExitError> {
    PassList::with_methods(settings::whole_patterns(pieces).iter().map(String::as_str))
        .map_err(|error| flag_error(flag, &error.pattern, error.source))
}

/// Rejects origins for tokens that no browser sends by itself.
fn reject_idle_cookie_origins(args: &TokenArgs, sources: &TokenSources) -> Result<(), ExitError> {
    let has_effect = sources.cookie.is_some() || !sources.headers.is_empty();
    if has_effect || args.cookie_origin.is_empty() {
        return Ok(());
    }
    let line = "--cookie-origin: has an effect only with --token-cookie, or with `token-header` of an [[issuer]]";
    Err(ExitError::Config(line.to_owned()))
}

/// Builds the context path from the application's name (contract §1).
fn context_path(app_name: &str) -> Result<ContextPath, ExitError> {
    settings::context_path(app_name).map_err(|error| flag_error("app-name", app_name, error))
}
