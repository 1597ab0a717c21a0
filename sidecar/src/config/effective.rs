//! The settings in effect for requests, as the status page presents them.

use serde::Serialize;
use wire::rules::Rule;

use super::issuers::IssuerSettings;
use crate::auth::authorize::AuthPolicy;
use crate::auth::issuers::{Issuer, Issuers};
use crate::cli::ServeArgs;
use crate::cli::rule_args::DefaultRule;
use crate::headers::identity::Encoding;

/// The effective settings.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct EffectiveConfig {
    pub(crate) service: String,
    pub(crate) context_path: String,
    /// Patterns of paths that need no token.
    #[serde(rename = "open_paths")]
    pub(crate) public_paths: Vec<String>,
    /// Patterns of paths where a token may be missing.
    pub(crate) optional_paths: Vec<String>,
    /// Conditions of a token for some methods and paths.
    pub(crate) rules: Vec<RuleSummary>,
    /// Requirement of requests without a rule.
    pub(crate) default_rule: DefaultRule,
    /// Location of a token besides `Authorization`.
    pub(crate) token_cookie: Option<String>,
    pub(crate) cookie_origins: Vec<String>,
    pub(crate) websocket_token: bool,
    pub(crate) user_header: String,
    pub(crate) user_header_encoding: Encoding,
    /// Claim and header pairs.
    pub(crate) claim_headers: Vec<String>,
    pub(crate) issuer: Option<String>,
    /// Accepted audiences, of which a token names one; empty if not checked.
    pub(crate) audiences: Vec<String>,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) keys_from: String,
    /// All settings as a configuration file, without secrets.
    pub(crate) settings: String,
    /// The issuers, where there may be several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) issuers: Vec<EffectiveIssuer>,
}

/// One rule.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RuleSummary {
    pub(crate) name: String,
    /// Empty: all.
    pub(crate) methods: Vec<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) needs: String,
}

impl RuleSummary {
    fn of(rule: &Rule) -> Self {
        let paths = rule.paths.iter().map(|path| path.as_str().to_owned());
        Self {
            name: rule.name.clone(),
            methods: rule.methods.each().map(ToString::to_string).collect(),
            paths: paths.collect(),
            needs: rule.requirement.to_string(),
        }
    }
}

/// One of several issuers.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EffectiveIssuer {
    pub(crate) name: String,
    /// Accepted issuers: one value for each tenant.
    pub(crate) accepts: Vec<String>,
    pub(crate) audiences: Vec<String>,
    /// The only header of its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_header: Option<String>,
    /// Put before the id and account of its users.
    pub(crate) user_prefix: String,
    /// Claim and header pairs, for its tokens alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) claim_headers: Vec<String>,
    pub(crate) keys_from: String,
    /// The position of its keys.
    #[serde(skip)]
    pub(crate) keys: usize,
}

fn each_issuer(args: &ServeArgs, issuers: &IssuerSettings) -> Vec<EffectiveIssuer> {
    let sources: Vec<_> = issuers.sources().collect();
    let effective = |issuer: &Issuer| EffectiveIssuer {
        name: issuer.name.clone(),
        accepts: Vec::new(),
        audiences: issuer.policy.audiences.clone(),
        token_header: issuer.token_header.as_ref().map(ToString::to_string),
        user_prefix: issuer.users.prefix.clone(),
        claim_headers: args.issuers.claim_headers(&issuer.name).to_vec(),
        keys_from: sources
            .get(issuer.keys)
            .map(ToString::to_string)
            .unwrap_or_default(),
        keys: issuer.keys,
    };
    let mut each: Vec<EffectiveIssuer> = Vec::new();
    for issuer in issuers.policies.iter().flat_map(Issuers::iter) {
        let mut one = match each.pop_if(|last| last.keys == issuer.keys) {
            Some(same) => same,
            None => effective(issuer),
        };
        one.accepts.extend(issuer.policy.issuer.clone());
        each.push(one);
    }
    each
}

pub(super) fn effective_config(
    args: &ServeArgs,
    issuers: &IssuerSettings,
    auth_policy: &AuthPolicy,
) -> EffectiveConfig {
    EffectiveConfig {
        service: args.service.upstream.clone(),
        context_path: match args.rules.app_name.as_str() {
            "" => String::new(),
            name => format!("/{name}"),
        },
        public_paths: args.rules.public_paths(),
        optional_paths: args.rules.optional_auth_paths(),
        rules: auth_policy
            .access_rules
            .rules()
            .iter()
            .map(RuleSummary::of)
            .collect(),
        default_rule: args.rules.default_rule,
        token_cookie: args.rules.tokens.token_cookie.clone(),
        cookie_origins: args.rules.tokens.cookie_origin.clone(),
        websocket_token: args.rules.tokens.websocket_token,
        user_header: args.rules.identity.user_header.clone(),
        user_header_encoding: args.rules.identity.user_header_encoding,
        claim_headers: args.rules.identity.claim_header.clone(),
        issuer: args.issuer().map(ToOwned::to_owned),
        audiences: args.rules.tokens.audience.clone(),
        cors_origins: args.rules.cors_origin.clone(),
        keys_from: issuers.first.source.to_string(),
        settings: args
            .to_table()
            .map_or_else(|_| String::new(), |all| all.to_string()),
        issuers: each_issuer(args, issuers),
    }
}
