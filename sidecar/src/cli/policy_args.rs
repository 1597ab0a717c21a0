//! The rules for requests: settings of `serve` and `check`.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use postern_contract::rules::Unmatched;
use postern_http::cors::Origin;
use postern_http::framing::is_tchar;
use postern_process::command_line::member;
use postern_process::command_line::seconds::{Seconds, within};
use postern_process::command_line::serialize::each_displayed;
use serde::Serialize;

use super::rule_args::{RuleTable, serialize_whole};
use super::service_args::UpstreamRequestArgs;
use crate::identity::client_certificate::CertificateField;
use crate::identity::user_header::Encoding;
use postern_process::command_line::texts::{Name, Text};

/// Flags of key sources other than the auth server.
pub(super) const ISSUERS: [&str; 2] = ["issuer_url", "jwks"];

/// More would accept tokens long after they expired.
const MAX_LEEWAY_SECONDS: u32 = 300;

/// Rules that accept, reject and forward requests; a reload replaces them as a whole.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Rules")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct RulesArgs {
    /// Application name of the service; its context path is /NAME, empty for none
    #[arg(long, env, default_value = "", value_name = "NAME")]
    pub(crate) app_name: String,

    /// Path without a token, as in '/static/**' or 'GET /products/**'; repeatable
    ///
    /// An Ant pattern, relative to the context path; methods in front limit it: GET,HEAD. May hold
    /// several separated by commas
    #[arg(long, env, value_delimiter = ',', value_parser = member::<String>, value_name = "PATTERN")]
    // The command line splits at every comma: `GET,HEAD /a` is two pieces, and one pattern in the output.
    #[serde(serialize_with = "serialize_whole")]
    pub(crate) public_path: Vec<String>,

    /// Path where the token is optional: without one the request is forwarded without a user;
    /// repeatable
    ///
    /// A bad token is rejected there too. Written as --public-path
    #[arg(long, env, value_delimiter = ',', value_parser = member::<String>, value_name = "PATTERN")]
    #[serde(serialize_with = "serialize_whole")]
    pub(crate) optional_auth_path: Vec<String>,

    /// Of the file alone, as `[[rule]]` is.
    #[arg(skip)]
    pub(crate) default_rule: Unmatched,

    #[arg(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rule: Vec<RuleTable>,

    /// Origin whose pages may call the service from a browser, as in https://app.example;
    /// repeatable
    ///
    /// Its preflights pass without a token, and the sidecar's own responses carry the CORS fields;
    /// the service adds its own. The cookie of --token-cookie is accepted from them no more than
    /// from any other site
    #[arg(long, env, value_delimiter = ',', value_parser = member::<Origin>, value_name = "ORIGIN")]
    #[serde(serialize_with = "each_displayed")]
    pub(crate) cors_origin: Vec<Origin>,

    /// URL under which clients know the service, as in https://api.example/orders; repeatable
    ///
    /// The sidecar then serves its metadata as an OAuth protected resource (RFC 9728), for every
    /// origin, and names them in every challenge, so that clients find its issuers that are URLs
    #[arg(long, env, value_delimiter = ',', value_parser = member::<String>, value_name = "URL")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource: Vec<String>,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) enforcement: EnforcementArgs,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) tokens: TokenArgs,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) identity: IdentityArgs,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) upstream_request: UpstreamRequestArgs,
}

impl RulesArgs {
    /// Returns true if proofs are verified: their URLs are compared with those of resources.
    pub(crate) const fn takes_proofs(&self) -> bool {
        !self.resource.is_empty() && !self.tokens.accept_bound_tokens
    }
}

/// Enforcement of tokens and rules.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Enforcement")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct EnforcementArgs {
    /// Reject requests, or only report those that would be rejected for their token or by a
    /// [[rule]]
    ///
    /// They are forwarded, with a user only if their token was verified. Framing, paths and sizes
    /// are enforced always
    #[arg(long, env, value_enum, default_value_t, value_name = "MODE")]
    pub(crate) enforce: Enforce,

    /// With --enforce report: the time from which requests are rejected all the same
    ///
    /// As in 2026-12-31T00:00:00Z, at most 30 days ahead
    #[arg(long, env, value_name = "TIME")]
    pub(crate) report_until: Option<String>,
}

/// The mode of enforcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Enforce {
    /// Requests are rejected.
    #[default]
    On,
    /// Requests are reported and forwarded.
    Report,
}

/// Locations of the token in a request, and its required claims.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Tokens")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct TokenArgs {
    /// Accept only tokens of this issuer (iss)
    #[arg(long, env, value_name = "NAME")]
    pub(crate) issuer: Option<Text<Name>>,

    /// Accept only tokens for this audience (aud); repeatable
    ///
    /// For any of them; may hold several separated by commas. With --auth-server and without this, a
    /// token that names an audience has to name --app-id or --app-name
    #[arg(long, env, value_delimiter = ',', value_parser = member::<Text<Name>>, value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) audience: Vec<Text<Name>>,

    /// Fill a field of the user from a claim; repeatable
    ///
    /// For tokens of another issuer than the auth server. A claim's name is taken whole; one that
    /// begins with / is a JSON Pointer to a nested claim. id and account come from sub unless
    /// mapped
    #[arg(long, env, value_delimiter = ',', value_parser = member::<String>, value_name = "FIELD=CLAIM")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) claim: Vec<String>,

    /// Time by which clocks may differ, at most 5m
    #[arg(
        long,
        env,
        default_value_t = Seconds::new(30),
        value_parser = within(0..=MAX_LEEWAY_SECONDS),
        value_name = "DURATION"
    )]
    pub(crate) leeway: Seconds,

    /// Accept tokens without an expiry (exp)
    #[arg(long, env)]
    pub(crate) allow_no_exp: bool,

    /// Accept tokens bound to a key of the client (cnf) without a proof: a proxy in front checks it
    #[arg(long, env, default_value_t = false, action = ArgAction::Set)]
    pub(crate) accept_bound_tokens: bool,

    /// Header in which a --trusted-proxy sends the certificate of its client
    ///
    /// For tokens that are bound to it (RFC 8705): as :BASE64: (RFC 9440), as escaped PEM, or
    /// X-Forwarded-Client-Cert with Hash. It is removed from every request
    #[arg(long, env, value_name = "NAME")]
    pub(crate) client_cert_header: Option<Text<CertificateField>>,

    /// File with the secret of DPoP nonces, the same at all replicas: proofs then need one (RFC 9449 §8)
    ///
    /// One line of at least 32 characters; a former one may follow in a second line. Read again at a
    /// reload. Without the file proofs need no nonce
    #[arg(long, env, value_name = "FILE")]
    pub(crate) dpop_nonce_key_file: Option<PathBuf>,

    /// Cookie that may hold the token if there is no Authorization header
    ///
    /// WebSockets, and requests other than GET, HEAD and OPTIONS, are rejected if another site made
    /// the browser send them
    #[arg(long, env, value_parser = cookie_name, value_name = "NAME")]
    pub(crate) token_cookie: Option<String>,

    /// Origin of another site whose pages may make the browser send that cookie; repeatable
    ///
    /// As in https://app.example. Also one for which a proxy adds the token-header of an
    /// [[issuer]]. Those of --cors-origin may not unless they are listed here too
    #[arg(long, env, value_delimiter = ',', value_parser = member::<Origin>, value_name = "ORIGIN")]
    #[serde(
        serialize_with = "each_displayed",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub(crate) cookie_origin: Vec<Origin>,

    /// Take the token of a WebSocket from Sec-WebSocket-Protocol: bearer, TOKEN
    ///
    /// It is the only field that a browser can set
    #[arg(long, env)]
    pub(crate) websocket_token: bool,
}

/// Parses the name of a cookie (RFC 6265 §4.1.1).
fn cookie_name(name: &str) -> Result<String, &'static str> {
    if !name.is_empty() && name.bytes().all(is_tchar) {
        Ok(name.to_owned())
    } else {
        Err("is not the name of a cookie")
    }
}

/// Headers that name the user to the service.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Identity")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct IdentityArgs {
    /// Header that names the user to the service
    #[arg(long, env, default_value = "X-Current-User", value_name = "NAME")]
    pub(crate) user_header: String,

    /// Encoding of the user in that header: JSON in ASCII, or the same in base64url without padding
    #[arg(long, env, value_enum, default_value_t = Encoding::Json, value_name = "ENCODING")]
    pub(crate) user_header_encoding: Encoding,

    /// Pass one claim of the token to the service in a header, as in X-User-Id=sub; repeatable
    ///
    /// A claim is named as in --claim. Text is percent-encoded except visible ASCII, and so are %
    /// and the comma, which separates the members of a list; an object is JSON. Without the claim
    /// there is no header; values that clients send under the name are always removed
    #[arg(long, env, value_delimiter = ',', value_parser = member::<String>, value_name = "NAME=CLAIM")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) claim_header: Vec<String>,
}
