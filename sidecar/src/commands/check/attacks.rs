//! The attacks of `check`, read from `attacks.toml`, and the request that carries one.

use runtime::process::exit::ExitError;
use serde::Deserialize;
use wire::rejection::Rejection;

use crate::admin::explain::replay;
use crate::auth::authorize::{AuthPolicy, Decision};
use crate::keys::issuer_keys::KeysByIssuer;
use crate::request::head;

/// `attacks.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Attacks {
    /// `iat` and `nbf` of all tokens, in seconds since the epoch.
    pub(super) issued: i64,
    /// `exp` of all tokens, in seconds since the epoch.
    pub(super) expires: i64,
    pub(super) path: PathParts,
    pub(super) request: Vec<RequestRow>,
    pub(super) key: Vec<KeyRows>,
}

/// Building blocks of disguised paths.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PathParts {
    /// Spellings of `..`.
    pub(super) dots: Vec<String>,
    /// Spellings of `/`.
    pub(super) slashes: Vec<String>,
    /// Characters that end a path for some program.
    pub(super) ends: Vec<String>,
    /// Odd spellings of the path `/{rest}`.
    pub(super) spellings: Vec<String>,
}

/// A request that carries the good token in a way that is not allowed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestRow {
    pub(super) name: String,
    /// Header lines; `{token}` is the good token.
    pub(super) lines: Vec<String>,
    #[serde(default)]
    pub(super) query: String,
    /// The reason code of the rejection.
    pub(super) reason: String,
}

/// A trusted key and tokens for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct KeyRows {
    pub(super) signing_type: String,
    /// The PEM of the public key, or the shared secret.
    pub(super) key: String,
    /// The positive control.
    pub(super) good: String,
    /// The good token without `exp`.
    pub(super) without_exp: String,
    pub(super) rejected: Vec<TokenRow>,
}

/// A token that no configuration accepts.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields)]
pub(super) struct TokenRow {
    pub(super) name: String,
    /// The reason code of the rejection.
    pub(super) reason: String,
    pub(super) token: String,
}

impl Attacks {
    pub(super) fn load() -> Result<Self, ExitError> {
        toml::from_str(include_str!("attacks.toml")).map_err(|error| unusable(&error))
    }
}

pub(super) fn unusable(error: &dyn std::fmt::Display) -> ExitError {
    ExitError::Software(format!("the table of attacks cannot be used: {error}"))
}

/// Authorizes a GET with these header lines and a host, read by the parser of the proxy.
///
/// # Errors
/// The reason of the rejection.
pub(super) fn authorize(
    rules: &AuthPolicy,
    target: &str,
    lines: &[String],
    keys: impl KeysByIssuer,
    now: i64,
) -> Result<Decision, Rejection> {
    authorize_method(rules, "GET", target, lines, keys, now)
}

/// Authorizes a request as [`authorize`] does, with another method.
///
/// # Errors
/// The reason of the rejection.
pub(super) fn authorize_method(
    rules: &AuthPolicy,
    method: &str,
    target: &str,
    lines: &[String],
    keys: impl KeysByIssuer,
    now: i64,
) -> Result<Decision, Rejection> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let raw = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
    let session = replay::read(raw.as_bytes())?;
    let decision = head::with_request_head(&session, |head| rules.authorize(head, keys, now));
    decision.map_err(|rejected| rejected.rejection)
}
