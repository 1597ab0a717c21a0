//! The settings that decide what becomes of a request: of `serve` and `check`, and of `explain`, which
//! needs no others.

use clap::{ArgAction, Args};
use process::command_line::shown::word;
use serde::Serialize;

use crate::forwarded::ForwardedPolicy;

/// What the judge and the last hand on a request are told.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct RulesArgs {
    /// Application name of the service; its context path is /NAME. Empty: no context path
    #[arg(
        long,
        env = "POSTERN_APP_NAME",
        default_value = "",
        value_name = "NAME"
    )]
    pub(crate) app_name: String,

    /// Accept only tokens of this issuer (iss)
    #[arg(long, env = "POSTERN_ISSUER", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) issuer: Option<String>,

    /// Accept only tokens meant for this audience (aud)
    #[arg(long, env = "POSTERN_AUDIENCE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) audience: Option<String>,

    /// Seconds by which clocks may differ
    #[arg(
        long,
        env = "POSTERN_LEEWAY",
        default_value_t = 30,
        value_name = "SECONDS"
    )]
    pub(crate) leeway: u32,

    /// Accept tokens without an expiry (exp)
    #[arg(long, env = "POSTERN_ALLOW_NO_EXP")]
    pub(crate) allow_no_exp: bool,

    /// Ant pattern, relative to the context path, of paths that need no token; may be repeated, or
    /// hold several separated by commas
    #[arg(
        long,
        env = "POSTERN_PASS",
        value_delimiter = ',',
        value_name = "PATTERN"
    )]
    pub(crate) pass: Vec<String>,

    /// Ant pattern, relative to the context path, of paths where a token may be missing: the request
    /// is then forwarded without a user. A bad token is refused there too. Written as --pass
    #[arg(
        long,
        env = "POSTERN_OPTIONAL",
        value_delimiter = ',',
        value_name = "PATTERN"
    )]
    pub(crate) optional: Vec<String>,

    /// Cookie that may hold the token where there is no Authorization header. Requests that may change
    /// something are refused if another site made the browser send them
    #[arg(long, env = "POSTERN_TOKEN_COOKIE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_cookie: Option<String>,

    /// Take the token of a WebSocket from Sec-WebSocket-Protocol: bearer, TOKEN, which is all that a
    /// browser can send
    #[arg(long, env = "POSTERN_WEBSOCKET_TOKEN")]
    pub(crate) websocket_token: bool,

    /// Header that tells the service who the user is
    #[arg(
        long,
        env = "POSTERN_USER_HEADER",
        default_value = "X-Current-User",
        value_name = "NAME"
    )]
    pub(crate) user_header: String,

    /// Longest value of that header; a user who does not fit is refused
    #[arg(
        long,
        env = "POSTERN_MAX_USER_HEADER_BYTES",
        default_value_t = 6144,
        value_name = "BYTES"
    )]
    pub(crate) max_user_header_bytes: usize,

    /// Longest Authorization header
    #[arg(
        long,
        env = "POSTERN_MAX_AUTHORIZATION_BYTES",
        default_value_t = 8192,
        value_name = "BYTES"
    )]
    pub(crate) max_authorization_bytes: usize,

    /// Whether the service sees the Authorization header
    #[arg(long, env = "POSTERN_FORWARD_AUTHORIZATION", default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    pub(crate) forward_authorization: bool,

    /// Reuse a connection to the service after a request with a body. Quicker; only for a service
    /// that reads every body to its end, also of requests that it refuses
    #[arg(long, env = "POSTERN_REUSE_AFTER_BODY")]
    pub(crate) reuse_after_body: bool,

    /// What becomes of X-Forwarded-For, -Proto, -Host and Forwarded: the client's address is appended,
    /// everything a client says is overwritten, or nothing is touched
    #[arg(long, env = "POSTERN_FORWARDED", value_enum, default_value_t = ForwardedPolicy::Append, value_name = "POLICY")]
    #[serde(serialize_with = "word")]
    pub(crate) forwarded: ForwardedPolicy,

    /// Origin whose pages may call the service from a browser, as in https://app.example; may be
    /// repeated, or hold several separated by commas. Its preflights pass without a token, and our
    /// own answers carry the CORS fields; the service answers for itself
    #[arg(
        long,
        env = "POSTERN_CORS_ORIGIN",
        value_delimiter = ',',
        value_name = "ORIGIN"
    )]
    pub(crate) cors_origin: Vec<String>,
}
