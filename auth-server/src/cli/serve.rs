//! The settings of `serve` and `check`. The help has a heading for each group.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use postern_http::cors::Origin;
use postern_http::path::patterns::ContextPath;
use postern_process::command_line::seconds::{Seconds, within};
use postern_process::command_line::serialize::{displayed, displayed_if_any, each_displayed, word};
use postern_process::command_line::{member, member_name, name};
use postern_process::logs::access_log::AccessLog;
use postern_process::logs::subscriber::LogArgs;
use postern_transport::net::client_address::{IpNet, parse_network};
use postern_transport::net::listener::ip_address_and_port;
use postern_transport::tls::{ClientCertArgs, TlsArgs};
use serde::Serialize;

use super::logout_table::LogoutTable;
use super::store::StoreArgs;
use super::{LeadArgs, SigningArgs};
use crate::accounts::users::UsersLocation;
use crate::revocations::MAX_SESSION_LIFETIME;

/// The settings of `serve` and `check`. Serialized they are a configuration file, except those that
/// are printed without a password.
#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) listening: ListenArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) keys: KeyStoreArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) tokens: TokenArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) accounts: AccountArgs,
    #[arg(skip)]
    #[serde(rename = "logout", skip_serializing_if = "Vec::is_empty")]
    pub(crate) logouts: Vec<LogoutTable>,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) pages: PageArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) registration: RegistrationArgs,
    /// Time to go on accepting after SIGTERM while reporting not ready; 5s in the image
    ///
    /// As long as what routes to this program takes to follow /readyz
    #[arg(long, env, value_name = "DURATION", help_heading = "Stop",
          default_value_t = Seconds::new(0), value_parser = within(0..=300))]
    pub(crate) lame_duck: Seconds,
    /// Which requests get a log line
    #[arg(long, env, value_name = "WHICH", help_heading = "Logs", value_enum,
          default_value_t = AccessLog::Rejections)]
    #[serde(serialize_with = "word")]
    pub(crate) access_log: AccessLog,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) logs: LogArgs,
}

/// The port for clients with its certificate, and the admin port.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Listening")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ListenArgs {
    /// Address to serve on; port 0 picks a free one
    ///
    /// It is printed as `listening on …`
    #[arg(
        long,
        env,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9000",
        value_parser = ip_address_and_port
    )]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) client_cert: ClientCertArgs,
    /// Address for probes, metrics and the status page; port 0 picks a free one
    #[arg(
        long,
        env,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9001",
        value_parser = ip_address_and_port
    )]
    pub(crate) admin_listen: SocketAddr,
    /// Path in front of every route; may be empty
    #[arg(long, env, value_name = "PATH", default_value = "/auth")]
    #[serde(serialize_with = "displayed")]
    pub(crate) context_path: ContextPath,
}

/// The store, and the life of the keys in it.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Keys and store")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct KeyStoreArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) signing: SigningArgs,
    /// Time between two polls of the store
    #[arg(long, env, value_name = "DURATION",
          default_value_t = Seconds::new(30), value_parser = within(1..=86_400))]
    pub(crate) store_poll_interval: Seconds,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) lead: LeadArgs,
    /// Time that a key signs until a fresh one takes its place; 0: only keys rotate does that
    #[arg(long, env, value_name = "DURATION", default_value_t = Seconds::new(0))]
    pub(crate) rotate_every: Seconds,
}

/// Claims of the issued tokens, and the response that carries them.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Tokens")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct TokenArgs {
    /// Time that an access token is valid
    #[arg(long, env, value_name = "DURATION",
          default_value_t = Seconds::new(18_000), value_parser = within(1..=31_536_000))]
    pub(crate) token_lifetime: Seconds,
    /// The tokens' `iss` claim: a name, or the URL of this server for discovery
    #[arg(long, env, value_name = "NAME", default_value = "auth", value_parser = name)]
    pub(crate) issuer: String,
    /// Audience in the tokens' `aud` claim, for sidecars with the same --audience, --app-id or
    /// --app-name; repeatable
    #[arg(long, env, value_name = "NAME", value_delimiter = ',', value_parser = member_name)]
    pub(crate) audience: Vec<String>,
    /// Give a refresh token at each login, and take it at /oauth/token (RFC 6749)
    ///
    /// The login response then has `token_type`, `expires_in` and `refresh_token`, which are null
    /// otherwise. Each use gives a new one, and a late second use ends the session
    #[arg(long, env, default_value_t = false, action = ArgAction::Set)]
    pub(crate) refresh_tokens: bool,
    /// Time from a login until the user has to log in again, however often the token was refreshed
    #[arg(long, env, value_name = "DURATION",
          default_value_t = Seconds::new(604_800), value_parser = within(1..=MAX_SESSION_LIFETIME))]
    pub(crate) refresh_token_lifetime: Seconds,
    /// Sessions of one user, 0 for any number [default: 100 with a file of users, else 0]
    ///
    /// One more login ends the oldest
    #[arg(long, env, value_name = "NUMBER",
          value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) sessions_per_user: Option<u32>,
}

/// Users who may log in, and applications that may fetch the verification key.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Users and applications")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct AccountArgs {
    /// Users that can log in: builtin, or file:FILE [default: builtin on a loopback address]
    ///
    /// builtin: any name with any password is the same fixed user. file: the users of a TOML file,
    /// reloaded when it changes. Where other machines reach --listen, there is no default
    #[arg(long, env, value_name = "USERS")]
    #[serde(serialize_with = "displayed_if_any")]
    pub(crate) users: Option<UsersLocation>,
    /// Directory of applications that may fetch the verification key, a file each
    ///
    /// Beside those in the store. A file's name is the id, its content the secret (or two, each on
    /// a line); followed when it changes
    #[arg(long, env, value_name = "DIR")]
    pub(crate) applications_dir: Option<PathBuf>,
}

/// Paths without a token, static files and browsers of other origins.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Paths and pages")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct PageArgs {
    /// Path pattern below the context path that needs no token, such as '/public/**'; repeatable
    #[arg(long, env, value_name = "PATTERN", value_delimiter = ',', value_parser = member::<String>)]
    pub(crate) public_path: Vec<String>,
    /// Directory whose subdirectories `static` and `assets` are served under these names
    #[arg(long, env, value_name = "DIR")]
    pub(crate) static_dir: Option<PathBuf>,
    /// Origin whose pages may call this server from a browser, as in https://app.example; repeatable
    #[arg(long, env, value_name = "ORIGIN", value_delimiter = ',', value_parser = member::<Origin>)]
    #[serde(serialize_with = "each_displayed")]
    pub(crate) cors_origin: Vec<Origin>,
}

/// Bounds on times and numbers.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Limits")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct LimitArgs {
    /// Time for a TLS handshake, a request's header, again its body, and a blocked write
    #[arg(long, env, value_name = "DURATION",
          default_value_t = Seconds::new(10), value_parser = within(1..=300))]
    pub(crate) request_timeout: Seconds,
    /// Connections served at a time; a further one takes the place of an idle one, or is closed
    #[arg(long, env, value_name = "NUMBER", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_connections: u32,
    /// Logins a minute from one address, 0 for any number [default: 300 with a file of users, else 0]
    #[arg(long, env, value_name = "NUMBER",
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) login_rate_limit: Option<u32>,
    /// Network of proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8; repeatable
    #[arg(long, env, value_name = "CIDR", value_delimiter = ',', value_parser = parse_network)]
    #[serde(serialize_with = "each_displayed")]
    pub(crate) trusted_proxy: Vec<IpNet>,
}

/// The registry, and the address that is registered there.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Registry")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct RegistrationArgs {
    /// Registry for this server: none, or nacos://[USER@]HOST[:PORT][/NAMESPACE]
    ///
    /// Also nacos+https, with ?password-file=FILE&group=NAME&service=NAME&ca=FILE
    #[arg(long, env, value_name = "URL", default_value = "none")]
    pub(crate) registry: String,
    /// Where others reach this server, for the registry: HOST:PORT, or HOST
    ///
    /// Default: the address of --listen, unless it is a loopback or unspecified one
    #[arg(long, env, value_name = "HOST:PORT")]
    #[serde(skip)]
    pub(crate) advertise: Option<String>,
}
