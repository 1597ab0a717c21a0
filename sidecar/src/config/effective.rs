//! The settings in effect for requests, as the status page presents them.

use serde::Serialize;

use crate::cli::ServeArgs;
use crate::headers::identity::Encoding;
use crate::keys::source::SourceSettings;

/// The effective settings.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct EffectiveConfig {
    pub(crate) service: String,
    pub(crate) context_path: String,
    /// Patterns of paths that need no token.
    pub(crate) open_paths: Vec<String>,
    /// Patterns of paths where a token may be missing.
    pub(crate) optional_paths: Vec<String>,
    /// Location of a token besides `Authorization`.
    pub(crate) token_cookie: Option<String>,
    pub(crate) cookie_origins: Vec<String>,
    pub(crate) websocket_token: bool,
    pub(crate) user_header: String,
    pub(crate) user_header_encoding: Encoding,
    /// Claim and header pairs.
    pub(crate) claim_headers: Vec<String>,
    pub(crate) issuer: Option<String>,
    /// A token is for any of them; empty: not checked.
    pub(crate) audiences: Vec<String>,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) keys_from: String,
}

pub(super) fn effective_config(args: &ServeArgs, key_source: &SourceSettings) -> EffectiveConfig {
    EffectiveConfig {
        service: args.service.upstream.clone(),
        context_path: match args.rules.app_name.as_str() {
            "" => String::new(),
            name => format!("/{name}"),
        },
        open_paths: args.rules.pass.clone(),
        optional_paths: args.rules.optional.clone(),
        token_cookie: args.rules.tokens.token_cookie.clone(),
        cookie_origins: args.rules.tokens.cookie_origin.clone(),
        websocket_token: args.rules.tokens.websocket_token,
        user_header: args.rules.identity.user_header.clone(),
        user_header_encoding: args.rules.identity.user_header_encoding,
        claim_headers: args.rules.identity.claim_header.clone(),
        issuer: args.rules.tokens.issuer.clone(),
        audiences: args.rules.tokens.audience.clone(),
        cors_origins: args.rules.cors_origin.clone(),
        keys_from: key_source.to_string(),
    }
}
