//! The settings of `serve` and `check`: each is a flag, a `POSTERN_*` variable and a key of the
//! configuration file.

use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::ArgPredicate;
use clap::{ArgAction, ArgGroup, Args};
use contract::signing_type::SigningType;
use http::uri::Authority;
use process::client_address::{IpNet, parse_network};
use process::command_line::seconds::{Seconds, at_least_one, within};
use process::command_line::shown::{displayed_if_any, each_displayed, word};
use process::listener::ip_address_and_port;
use process::telemetry::LogArgs;
use process::tls::TlsArgs;
use serde::{Serialize, Serializer};
use service_registry::RegistryArgs;
use zeroize::Zeroizing;

use super::rules_args::{ISSUERS, IssuerTokenArgs, MarkArgs, RulesArgs, ServiceArgs};
use crate::access_log::AccessLog;
use crate::address_text::without_credentials;

/// The settings that say where the verification keys come from: exactly one is given.
const KEY_SOURCE: &str = "key_source";

/// What `serve` and `check` take. Serialised, it is the effective configuration.
#[derive(Debug, Clone, Args, Serialize)]
#[command(group = ArgGroup::new(KEY_SOURCE).required(true))]
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

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) service: ServiceArgs,

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

    /// The auth server with its context path: http(s)://HOST:PORT/CONTEXT; dns://NAME:PORT/CONTEXT to
    /// resolve the name at each tick and go round its addresses; dns+srv://_SERVICE._tcp.NAME/CONTEXT
    /// to go by its SRV records; nacos://[USER@]HOST[:PORT][,HOST…]/CONTEXT for the instances that a
    /// registry lists; these three also with +https
    #[arg(
        long,
        env = "POSTERN_AUTH_SERVER",
        group = KEY_SOURCE,
        requires = "app_id",
        conflicts_with_all = ["algorithms", "claim"],
        value_name = "URL"
    )]
    #[serde(
        serialize_with = "shown_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) auth_server: Option<String>,

    /// Any issuer in place of the auth server: the address of its JWK Set, https or http
    #[arg(
        long,
        env = "POSTERN_JWKS_URL",
        group = KEY_SOURCE,
        requires_all = ["issuer", "audience"],
        value_name = "URL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jwks_url: Option<String>,

    /// Any issuer in place of the auth server: a file with its JWK Set, read again at each tick
    #[arg(
        long,
        env = "POSTERN_JWKS_FILE",
        group = KEY_SOURCE,
        requires_all = ["issuer", "audience"],
        value_name = "FILE"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jwks_file: Option<PathBuf>,

    /// Any issuer in place of the auth server: a file with its public key, or several, in PEM, read
    /// again at each tick
    #[arg(
        long,
        env = "POSTERN_PUBLIC_KEY_FILE",
        group = KEY_SOURCE,
        requires_all = ["issuer", "audience"],
        value_name = "FILE"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_key_file: Option<PathBuf>,

    /// Certificates to trust with https in place of the system's: a bundle in PEM, read again when it
    /// changes
    #[arg(long, env = "POSTERN_AUTH_CA", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auth_ca: Option<PathBuf>,

    /// Certificate chain in PEM to show to an auth server that asks for one
    #[arg(
        long,
        env = "POSTERN_AUTH_CLIENT_CERT",
        requires = "auth_client_key",
        value_name = "FILE"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auth_client_cert: Option<PathBuf>,

    /// Private key of that certificate in PEM
    #[arg(
        long,
        env = "POSTERN_AUTH_CLIENT_KEY",
        requires = "auth_client_cert",
        value_name = "FILE"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auth_client_key: Option<PathBuf>,

    /// Name server to ask for dns:// and dns+srv:// in place of the machine's, such as Consul's
    /// 127.0.0.1:8600
    #[arg(
        long,
        env = "POSTERN_DNS_SERVER",
        conflicts_with_all = ISSUERS,
        value_parser = ip_address_and_port,
        value_name = "ADDRESS"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dns_server: Option<SocketAddr>,

    /// What the certificates of the instances name with nacos+https, if not the registered address
    #[arg(
        long,
        env = "POSTERN_AUTH_SERVER_NAME",
        value_parser = host_name,
        conflicts_with_all = ISSUERS,
        value_name = "NAME"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auth_server_name: Option<String>,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) registry: RegistryArgs,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) rules: RulesArgs,

    /// Application id shown to the auth server
    #[arg(
        long,
        env = "POSTERN_APP_ID",
        conflicts_with_all = ISSUERS,
        value_name = "ID"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_id: Option<String>,

    /// Application secret shown to the auth server
    #[arg(
        long,
        env = "POSTERN_APP_SECRET",
        hide_env_values = true,
        // One generated secret in 64 begins with a hyphen.
        allow_hyphen_values = true,
        conflicts_with_all = ISSUERS,
        value_name = "SECRET"
    )]
    #[serde(skip)]
    pub(crate) app_secret: Option<Secret>,

    /// File that holds the application secret
    #[arg(
        long,
        env = "POSTERN_APP_SECRET_FILE",
        conflicts_with_all = ISSUERS,
        value_name = "FILE"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_secret_file: Option<PathBuf>,

    /// How the auth server signs tokens: rsa (the default), hmac or ecdsa. It is configured with the
    /// same
    #[arg(
        long,
        env = "POSTERN_SIGNING_TYPE",
        default_value_if("auth_server", ArgPredicate::IsPresent, "rsa"),
        conflicts_with_all = ISSUERS,
        value_name = "TYPE"
    )]
    #[serde(
        serialize_with = "displayed_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) signing_type: Option<SigningType>,

    /// Allow --signing-type hmac: this sidecar then holds the secret that issues tokens
    #[arg(long, env = "POSTERN_TRUST_SHARED_SECRET")]
    pub(crate) trust_shared_secret: bool,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) issuer_tokens: IssuerTokenArgs,

    /// Time for which a key without a name still counts after another took its place. Only for
    /// servers without a JWK Set; 0: the last fetched key alone counts
    #[arg(
        long,
        env = "POSTERN_PREVIOUS_KEY_GRACE",
        default_value_t = Seconds::new(0),
        value_name = "DURATION"
    )]
    pub(crate) previous_key_grace: Seconds,

    /// Memory for tokens that were verified already, so that a repeated one is not verified again:
    /// about 500 bytes each. 0: every request's token is verified
    #[arg(
        long,
        env = "POSTERN_TOKEN_CACHE_BYTES",
        default_value_t = 16 * 1024 * 1024,
        value_name = "BYTES"
    )]
    pub(crate) token_cache_bytes: usize,

    /// Whether WebSockets, server-sent events and gRPC calls are closed when the token that opened
    /// them expires (exp and leeway)
    #[arg(long, env = "POSTERN_END_STREAMS", default_value_t = true, action = ArgAction::Set)]
    pub(crate) end_streams: bool,

    /// When to fetch the verification key: cron expression with seconds, in UTC
    #[arg(
        long,
        env = "POSTERN_REFRESH_CRON",
        default_value = "0 * * * * *",
        value_name = "CRON"
    )]
    pub(crate) refresh_cron: String,

    /// Whether a failed fetch is tried again while there is no key that can be used: after 1, 2, 4, 8,
    /// then every 10 seconds, beside the schedule
    #[arg(long, env = "POSTERN_RETRY_WITHOUT_KEY", default_value_t = true, action = ArgAction::Set)]
    pub(crate) retry_without_key: bool,

    /// File that keeps the last fetched keys, so that a sidecar that is started while nobody can be asked
    /// serves at once; --max-key-age counts on from the fetch. Written for its owner alone. Not with
    /// hmac, where the key is a secret
    #[arg(long, env = "POSTERN_KEY_CACHE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_cache: Option<PathBuf>,

    /// Time for which keys are trusted that cannot be fetched again, for example while the auth
    /// server is away; then tokens are answered with 503 auth_keys_stale. 0 for ever
    #[arg(
        long,
        env = "POSTERN_MAX_KEY_AGE",
        default_value_t = Seconds::new(86_400),
        value_name = "DURATION"
    )]
    pub(crate) max_key_age: Seconds,

    /// Time for connecting to the service
    #[arg(long, env = "POSTERN_UPSTREAM_CONNECT_TIMEOUT", default_value_t = Seconds::new(2), value_parser = at_least_one, value_name = "DURATION")]
    pub(crate) upstream_connect_timeout: Seconds,

    /// Time the service may be silent before and within its answer; 0 for ever. WebSockets, gRPC
    /// calls and event streams are exempt where the request brought a token
    #[arg(
        long,
        env = "POSTERN_UPSTREAM_READ_TIMEOUT",
        default_value_t = Seconds::new(60),
        value_name = "DURATION"
    )]
    pub(crate) upstream_read_timeout: Seconds,

    /// Time from the first byte of a request to the end of its header, at most 59s; a new
    /// connection may be silent for as long
    #[arg(long, env = "POSTERN_REQUEST_HEADER_TIMEOUT", default_value_t = Seconds::new(10), value_parser = within(1..=59), value_name = "DURATION")]
    pub(crate) request_header_timeout: Seconds,

    /// Time a client may be silent within the body of its request; 0 for ever. WebSockets,
    /// and gRPC calls that brought a token, are exempt
    #[arg(
        long,
        env = "POSTERN_REQUEST_BODY_TIMEOUT",
        default_value_t = Seconds::new(60),
        value_name = "DURATION"
    )]
    pub(crate) request_body_timeout: Seconds,

    /// Time a client may take nothing of what is sent to it; 0 for ever. Its connection is closed then
    #[arg(
        long,
        env = "POSTERN_SEND_TIMEOUT",
        default_value_t = Seconds::new(60),
        value_name = "DURATION"
    )]
    pub(crate) send_timeout: Seconds,

    /// Most connections of clients at once; more are closed. Default: half of the file descriptors
    /// that the process may have, less a few, and at most 16384
    #[arg(long, env = "POSTERN_MAX_CONNECTIONS", value_parser = connections, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_connections: Option<usize>,

    /// Most requests at once on their way to the service and back, over all connections; more are
    /// answered with 503 server_busy. Half of them at most without a token. Default: as for
    /// --max-connections
    #[arg(long, env = "POSTERN_MAX_IN_FLIGHT", value_parser = connections, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_in_flight: Option<usize>,

    /// Threads that serve requests
    #[arg(long, env = "POSTERN_THREADS", default_value_t = 1, value_parser = threads, value_name = "COUNT")]
    pub(crate) threads: usize,

    /// Time to go on accepting after SIGTERM while reporting not ready
    #[arg(
        long,
        env = "POSTERN_LAME_DUCK",
        default_value_t = Seconds::new(5),
        value_name = "DURATION"
    )]
    pub(crate) lame_duck: Seconds,

    /// Time after that for requests in flight to finish
    #[arg(
        long,
        env = "POSTERN_DRAIN_LIMIT",
        default_value_t = Seconds::new(20),
        value_name = "DURATION"
    )]
    pub(crate) drain_limit: Seconds,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) marks: MarkArgs,

    /// Which requests get a log line
    #[arg(long, env = "POSTERN_ACCESS_LOG", value_enum, default_value_t = AccessLog::Refusals, value_name = "WHICH")]
    #[serde(serialize_with = "word")]
    pub(crate) access_log: AccessLog,

    /// Network of proxies whose X-Forwarded-For is believed when a log line names the client, such as
    /// 10.0.0.0/8; repeatable
    #[arg(long, env = "POSTERN_TRUSTED_PROXY", value_name = "CIDR", value_delimiter = ',', value_parser = parse_network)]
    #[serde(serialize_with = "each_displayed")]
    pub(crate) trusted_proxy: Vec<IpNet>,

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

fn shown_if_any<S: Serializer>(text: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    displayed_if_any(&text.as_deref().map(without_credentials), serializer)
}
