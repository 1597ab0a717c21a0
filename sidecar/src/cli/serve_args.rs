//! The settings of `serve` and `check`: each is a flag, a `POSTERN_*` variable and a key of the
//! configuration file.

use std::convert::Infallible;
use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Args, ValueEnum};
use contract::signing_type::SigningType;
use http::uri::Authority;
use process::telemetry::LogArgs;
use process::tls::TlsArgs;
use serde::{Serialize, Serializer};
use service_registry::RegistryArgs;
use zeroize::Zeroizing;

use crate::access_log::AccessLog;
use crate::discovery::without_credentials;
use crate::forwarded::ForwardedPolicy;

/// What `serve` and `check` take. Serialised, it is the effective configuration.
#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ServeArgs {
    /// Address to serve on; port 0 picks a free one
    #[arg(
        long,
        env = "POSTERN_LISTEN",
        default_value = "127.0.0.1:8080",
        value_parser = ip_address_and_port,
        value_name = "ADDRESS"
    )]
    pub(crate) listen: SocketAddr,

    /// Address for probes, metrics and the status page; port 0 picks a free one
    #[arg(
        long,
        env = "POSTERN_ADMIN_LISTEN",
        default_value = "127.0.0.1:8081",
        value_parser = ip_address_and_port,
        value_name = "ADDRESS"
    )]
    pub(crate) admin_listen: SocketAddr,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) tls: TlsArgs,

    /// PEM file of the authorities of which one has to vouch for every client, besides its token
    #[arg(
        long,
        env = "POSTERN_CLIENT_CA",
        value_name = "FILE",
        requires = "tls_cert"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_ca: Option<PathBuf>,

    /// The service behind: http://HOST:PORT, https://HOST:PORT, h2c://HOST:PORT (HTTP/2 without TLS,
    /// for gRPC), unix:/PATH or h2c+unix:/PATH
    #[arg(
        long,
        env = "POSTERN_UPSTREAM",
        default_value = "http://127.0.0.1:3000",
        value_name = "URL"
    )]
    pub(crate) upstream: String,

    /// PEM file of the authorities that may vouch for an https:// service. Default: the system's
    #[arg(long, env = "POSTERN_UPSTREAM_CA", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_ca: Option<PathBuf>,

    /// PEM file of the certificate that is shown to an https:// service
    #[arg(long, env = "POSTERN_UPSTREAM_CLIENT_CERT", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_client_cert: Option<PathBuf>,

    /// PEM file of its private key
    #[arg(long, env = "POSTERN_UPSTREAM_CLIENT_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_client_key: Option<PathBuf>,

    /// Name that the certificate of an https:// service has to be for. Default: the host of --upstream
    #[arg(long, env = "POSTERN_UPSTREAM_SERVER_NAME", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_server_name: Option<String>,

    /// Address of the pod, to look once a minute whether the service answers there too, where nobody
    /// asks for a token; a warning and a metric say so
    #[arg(long, env = "POSTERN_POD_IP", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod_ip: Option<IpAddr>,

    /// Not to be ready while the service answers on --pod-ip
    #[arg(long, env = "POSTERN_REFUSE_BYPASS")]
    pub(crate) refuse_bypass: bool,

    /// The auth server with its context path: http://HOST:PORT/CONTEXT, dns://NAME:PORT/CONTEXT
    /// to resolve the name at each tick and go round its addresses, or
    /// nacos://[USER@]HOST[:PORT][,HOST…]/CONTEXT for the instances that a registry lists;
    /// nacos+https:// the same, with https to the instances
    #[arg(
        long,
        env = "POSTERN_AUTH_SERVER",
        // It may hold the password of a registry.
        hide_env_values = true,
        value_name = "URL"
    )]
    #[serde(serialize_with = "shown")]
    pub(crate) auth_server: String,

    /// What the certificates of the instances name with nacos+https, if not the registered address
    #[arg(long, env = "POSTERN_AUTH_SERVER_NAME", value_parser = host_name, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auth_server_name: Option<String>,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) registry: RegistryArgs,

    /// Application name of the service; its context path is /NAME. Empty: no context path
    #[arg(
        long,
        env = "POSTERN_APP_NAME",
        default_value = "",
        value_name = "NAME"
    )]
    pub(crate) app_name: String,

    /// Application id shown to the auth server
    #[arg(long, env = "POSTERN_APP_ID", value_name = "ID")]
    pub(crate) app_id: String,

    /// Application secret shown to the auth server
    #[arg(
        long,
        env = "POSTERN_APP_SECRET",
        hide_env_values = true,
        // One generated secret in 64 begins with a hyphen.
        allow_hyphen_values = true,
        value_name = "SECRET"
    )]
    #[serde(skip)]
    pub(crate) app_secret: Option<Secret>,

    /// File that holds the application secret
    #[arg(long, env = "POSTERN_APP_SECRET_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_secret_file: Option<PathBuf>,

    /// How tokens are signed: rsa, hmac or ecdsa. The auth server is configured with the same
    #[arg(
        long,
        env = "POSTERN_SIGNING_TYPE",
        default_value_t,
        value_name = "TYPE"
    )]
    #[serde(serialize_with = "displayed")]
    pub(crate) signing_type: SigningType,

    /// Allow --signing-type hmac: this sidecar then holds the secret that issues tokens
    #[arg(long, env = "POSTERN_TRUST_SHARED_SECRET")]
    pub(crate) trust_shared_secret: bool,

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

    /// What becomes of X-Forwarded-For, -Proto, -Host and Forwarded: the client's address is appended,
    /// everything a client says is overwritten, or nothing is touched
    #[arg(long, env = "POSTERN_FORWARDED", value_enum, default_value_t = ForwardedPolicy::Append, value_name = "POLICY")]
    #[serde(serialize_with = "word")]
    pub(crate) forwarded: ForwardedPolicy,

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

    /// Memory for tokens that were verified already, so that a repeated one is not verified again:
    /// about 500 bytes each. 0: every request's token is verified
    #[arg(
        long,
        env = "POSTERN_TOKEN_CACHE_BYTES",
        default_value_t = 16 * 1024 * 1024,
        value_name = "BYTES"
    )]
    pub(crate) token_cache_bytes: usize,

    /// Whether the service sees the Authorization header
    #[arg(long, env = "POSTERN_FORWARD_AUTHORIZATION", default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    pub(crate) forward_authorization: bool,

    /// Reuse a connection to the service after a request with a body. Quicker; only for a service
    /// that reads every body to its end, also of requests that it refuses
    #[arg(long, env = "POSTERN_REUSE_AFTER_BODY")]
    pub(crate) reuse_after_body: bool,

    /// Whether WebSockets, server-sent events and gRPC calls are closed when the token that opened
    /// them expires (exp and leeway)
    #[arg(long, env = "POSTERN_END_STREAMS", default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    pub(crate) end_streams: bool,

    /// When to fetch the verification key: cron expression with seconds, in UTC
    #[arg(
        long,
        env = "POSTERN_REFRESH_CRON",
        default_value = "0 * * * * *",
        value_name = "CRON"
    )]
    pub(crate) refresh_cron: String,

    /// Seconds for which keys are trusted that cannot be fetched again, for example while the auth
    /// server is away; then tokens are answered with 503 auth_keys_stale. 0 for ever
    #[arg(
        long,
        env = "POSTERN_MAX_KEY_AGE",
        default_value_t = 86_400,
        value_name = "SECONDS"
    )]
    pub(crate) max_key_age: u64,

    /// Seconds for connecting to the service
    #[arg(long, env = "POSTERN_UPSTREAM_CONNECT_TIMEOUT", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    pub(crate) upstream_connect_timeout: u64,

    /// Seconds the service may be silent before and within its answer; 0 for ever. WebSockets, gRPC
    /// and requests that accept text/event-stream are exempt
    #[arg(
        long,
        env = "POSTERN_UPSTREAM_READ_TIMEOUT",
        default_value_t = 60,
        value_name = "SECONDS"
    )]
    pub(crate) upstream_read_timeout: u64,

    /// Seconds from the first byte of a request to the end of its header, at most 59; a new
    /// connection may be silent for as long
    #[arg(long, env = "POSTERN_REQUEST_HEADER_TIMEOUT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..60), value_name = "SECONDS")]
    pub(crate) request_header_timeout: u64,

    /// Seconds a client may be silent within the body of its request; 0 for ever. WebSockets are exempt
    #[arg(
        long,
        env = "POSTERN_REQUEST_BODY_TIMEOUT",
        default_value_t = 60,
        value_name = "SECONDS"
    )]
    pub(crate) request_body_timeout: u64,

    /// Most connections of clients at once; more are closed. Default: half of the file descriptors
    /// that the process may have, less a few, and at most 16384
    #[arg(long, env = "POSTERN_MAX_CONNECTIONS", value_parser = connections, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_connections: Option<usize>,

    /// Threads that serve requests
    #[arg(long, env = "POSTERN_THREADS", default_value_t = 1, value_parser = threads, value_name = "COUNT")]
    pub(crate) threads: usize,

    /// Seconds to go on accepting after SIGTERM while reporting not ready
    #[arg(
        long,
        env = "POSTERN_LAME_DUCK",
        default_value_t = 5,
        value_name = "SECONDS"
    )]
    pub(crate) lame_duck: u64,

    /// Seconds after that for requests in flight to finish
    #[arg(
        long,
        env = "POSTERN_DRAIN_LIMIT",
        default_value_t = 20,
        value_name = "SECONDS"
    )]
    pub(crate) drain_limit: u64,

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

    /// Give each request an id (X-Request-Id), unless it brings one: for the service, the answer and
    /// the log
    #[arg(long, env = "POSTERN_REQUEST_ID")]
    pub(crate) request_id: bool,

    /// Begin a trace (W3C traceparent) where a request belongs to none
    #[arg(long, env = "POSTERN_START_TRACES")]
    pub(crate) start_traces: bool,

    /// Which requests get a log line
    #[arg(long, env = "POSTERN_ACCESS_LOG", value_enum, default_value_t = AccessLog::Refusals, value_name = "WHICH")]
    #[serde(serialize_with = "word")]
    pub(crate) access_log: AccessLog,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) logs: LogArgs,
}

/// Each thread has its own memory and connection pool; past this it is a typing mistake.
const MAX_THREADS: usize = 1024;

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=MAX_THREADS) => Ok(count),
        _ => Err(format!("expected 1 to {MAX_THREADS}")),
    }
}

fn connections(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("expected 1 or more".to_owned()),
    }
}

fn host_name(text: &str) -> Result<String, String> {
    match text.parse::<Authority>() {
        Ok(authority) if authority.host() == text => Ok(text.to_owned()),
        _ => Err("expected a host name, without a port".to_owned()),
    }
}

/// Not a name: which address of several would it be?
fn ip_address_and_port(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "expected an IP address and a port, as in 127.0.0.1:8080".to_owned())
}

/// A value of the command line that is shown nowhere.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) Zeroizing<String>);

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(Zeroizing::new(text.to_owned())))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

fn displayed<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn shown<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&without_credentials(text))
}

/// The word by which the flag takes the value.
fn word<T: ValueEnum, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let possible = value.to_possible_value();
    serializer.serialize_str(possible.as_ref().map_or("", |value| value.get_name()))
}
