//! The command line. Every flag of `serve` is a `POSTERN_*` variable and a key of the configuration
//! file as well; the doc comments are the help text.

pub(crate) mod application;
pub(crate) mod store;
pub(crate) mod token;
pub(crate) mod user;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use contract::cors::Origin;
use contract::keys::KeyId;
use contract::path_patterns::ContextPath;
use contract::signing_type::SigningType;
use process::access_log::AccessLog;
use process::client_address::{IpNet, parse_network};
use process::command_line::not_empty;
use process::command_line::seconds::{Seconds, within};
use process::command_line::shown::{displayed, each_displayed, word};
use process::listener::ip_address_and_port;
use process::telemetry::LogArgs;
use process::tls::TlsArgs;
use serde::Serialize;
use service_registry::RegistryArgs;

use self::application::ApplicationCommand;
use self::store::StoreArgs;
use self::token::TokenCommand;
use self::user::UserCommand;
use crate::config::rotation::RotateEvery;
use crate::users::UsersLocation;

/// Issues signed access tokens (JWT) and hands out the key that verifies them
#[derive(Debug, Parser)]
#[command(name = "auth-server", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until SIGTERM or SIGINT
    Serve(Box<ServeArgs>),
    /// Check the configuration of `serve` and print it as a configuration file, without secrets
    Check(Box<CheckArgs>),
    /// Ask a running server whether it is ready
    Healthcheck(HealthcheckArgs),
    /// Look at the keys in the store, rotate and revoke them
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Manage the applications that may fetch the verification key
    #[command(subcommand)]
    Application(ApplicationCommand),
    /// Look into a token
    #[command(subcommand)]
    Token(TokenCommand),
    /// Manage the users of a file
    #[command(subcommand)]
    User(UserCommand),
}

/// What `serve` and `check` take. Serialised, it is a configuration file, but for what has to be shown
/// without a password.
#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ServeArgs {
    /// Address to serve on; port 0 picks a free one, printed as `listening on …`
    #[arg(
        long,
        env = "POSTERN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9000",
        value_parser = ip_address_and_port
    )]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) tls: TlsArgs,
    /// Address of the admin port: /livez, /readyz, /startupz, /metrics
    #[arg(
        long,
        env = "POSTERN_ADMIN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9001",
        value_parser = ip_address_and_port
    )]
    pub(crate) admin_listen: SocketAddr,
    /// Path in front of every route; may be empty
    #[arg(
        long,
        env = "POSTERN_CONTEXT_PATH",
        value_name = "PATH",
        default_value = "/auth"
    )]
    #[serde(serialize_with = "displayed")]
    pub(crate) context_path: ContextPath,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) signing: SigningArgs,
    /// Time between two looks into the store
    #[arg(long, env = "POSTERN_STORE_REREAD", value_name = "DURATION",
          default_value_t = Seconds::new(30), value_parser = within(1..=86_400))]
    pub(crate) store_reread: Seconds,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) lead: LeadArgs,
    /// Time that a key signs until a fresh one takes its place, or off: only keys rotate does
    #[arg(
        long,
        env = "POSTERN_ROTATE_EVERY",
        value_name = "DURATION",
        default_value_t
    )]
    #[serde(serialize_with = "displayed")]
    pub(crate) rotate_every: RotateEvery,
    /// Time that an access token is valid
    #[arg(long, env = "POSTERN_TOKEN_LIFETIME", value_name = "DURATION",
          default_value_t = Seconds::new(18_000), value_parser = within(1..=31_536_000))]
    pub(crate) token_lifetime: Seconds,
    /// The tokens' `iss` claim, which is required of tokens in turn
    #[arg(long, env = "POSTERN_ISSUER", value_name = "NAME", default_value = "auth",
          value_parser = not_empty)]
    pub(crate) issuer: String,
    /// Put this audience into the tokens' `aud` claim, for sidecars with the same --audience; repeatable
    #[arg(long, env = "POSTERN_AUDIENCE", value_name = "NAME", value_delimiter = ',',
          value_parser = not_empty)]
    pub(crate) audience: Vec<String>,
    /// Clock difference granted to a token's `exp` and `nbf`
    #[arg(long, env = "POSTERN_LEEWAY", value_name = "DURATION",
          default_value_t = Seconds::new(30), value_parser = within(0..=300))]
    pub(crate) leeway: Seconds,
    /// Fill `token_type` and `expires_in` of the login answer (RFC 6749); they are null otherwise
    #[arg(long, env = "POSTERN_OAUTH_RESPONSE")]
    pub(crate) oauth_response: bool,
    /// Path pattern below the context path that needs no token, such as '/public/**'; repeatable
    #[arg(
        long,
        env = "POSTERN_PASS",
        value_name = "PATTERN",
        value_delimiter = ','
    )]
    pub(crate) pass: Vec<String>,
    /// Directory whose subdirectories `static` and `assets` are served under these names
    #[arg(long, env = "POSTERN_STATIC_DIR", value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) static_dir: Option<PathBuf>,
    /// Time for a TLS handshake, a request's header, again its body, and a client to read on
    #[arg(long, env = "POSTERN_REQUEST_TIMEOUT", value_name = "DURATION",
          default_value_t = Seconds::new(10), value_parser = within(1..=300))]
    pub(crate) request_timeout: Seconds,
    /// Time to go on accepting after SIGTERM while reporting not ready
    #[arg(long, env = "POSTERN_LAME_DUCK", value_name = "DURATION",
          default_value_t = Seconds::new(5), value_parser = within(0..=300))]
    pub(crate) lame_duck: Seconds,
    /// Connections served at a time; further ones wait
    #[arg(long, env = "POSTERN_MAX_CONNECTIONS", value_name = "NUMBER", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_connections: u32,
    /// Who may log in. builtin: any name with any password is the same fixed user; file:FILE: the
    /// users of a TOML file, which is followed when it changes
    #[arg(
        long,
        env = "POSTERN_USERS",
        value_name = "USERS",
        default_value = "builtin"
    )]
    #[serde(serialize_with = "displayed")]
    pub(crate) users: UsersLocation,
    /// Directory of applications that may fetch the verification key, beside those in the store: a file
    /// each, its name the id, its content the secret (or two, each on a line); followed when it changes
    #[arg(long, env = "POSTERN_APPLICATIONS_DIR", value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) applications_dir: Option<PathBuf>,
    /// Logins a minute from one address, 0 for any number [default: 300 with a file of users, else 0]
    #[arg(long, env = "POSTERN_LOGIN_RATE", value_name = "NUMBER",
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) login_rate: Option<u32>,
    /// Network of proxies whose X-Forwarded-For is believed, such as 10.0.0.0/8; repeatable
    #[arg(long, env = "POSTERN_TRUSTED_PROXY", value_name = "CIDR", value_delimiter = ',',
          value_parser = parse_network)]
    #[serde(serialize_with = "each_displayed")]
    pub(crate) trusted_proxy: Vec<IpNet>,
    /// Where the server registers itself: none, or nacos://[USER@]HOST[:PORT][,HOST…]
    #[arg(
        long,
        env = "POSTERN_REGISTRY",
        value_name = "REGISTRY",
        default_value = "none"
    )]
    #[serde(skip)]
    pub(crate) registry: String,
    /// Where others reach this server, for the registry: HOST:PORT, or HOST for the port of --listen
    /// [default: the address of --listen, unless it is a loopback or unspecified one]
    #[arg(long, env = "POSTERN_ADVERTISE", value_name = "HOST:PORT")]
    #[serde(skip)]
    pub(crate) advertise: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) registry_args: RegistryArgs,
    /// Origin whose pages may call this server from a browser, as in https://app.example; repeatable
    #[arg(
        long,
        env = "POSTERN_CORS_ORIGIN",
        value_name = "ORIGIN",
        value_delimiter = ','
    )]
    #[serde(serialize_with = "each_displayed")]
    pub(crate) cors_origin: Vec<Origin>,
    /// A console at /static/, for trying things out in a browser
    #[arg(long, env = "POSTERN_CONSOLE", default_value_t = true, action = ArgAction::Set)]
    pub(crate) console: bool,
    /// Origin of a sidecar that the console at /static/ may call, as in https://orders.example;
    /// repeatable. That sidecar needs this server's origin as its --cors-origin
    #[arg(
        long,
        env = "POSTERN_CONSOLE_TARGET",
        value_name = "ORIGIN",
        value_delimiter = ','
    )]
    #[serde(serialize_with = "each_displayed")]
    pub(crate) console_target: Vec<Origin>,
    /// Give each request an id (X-Request-Id), unless it brings one: for the answer and the log
    #[arg(long, env = "POSTERN_REQUEST_ID")]
    pub(crate) request_id: bool,
    /// Which requests get a log line
    #[arg(
        long,
        env = "POSTERN_ACCESS_LOG",
        value_name = "WHICH",
        value_enum,
        default_value_t = AccessLog::Refusals
    )]
    #[serde(serialize_with = "word")]
    pub(crate) access_log: AccessLog,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) logs: LogArgs,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct SigningArgs {
    /// How tokens are signed: rsa (RS256), ecdsa (ES256) or hmac (HS256, shared secret)
    #[arg(
        long,
        env = "POSTERN_SIGNING_TYPE",
        value_name = "TYPE",
        default_value_t
    )]
    #[serde(serialize_with = "displayed")]
    pub(crate) signing_type: SigningType,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct LeadArgs {
    /// Time between publishing a next key and signing with it
    #[arg(long, env = "POSTERN_ROTATION_LEAD", value_name = "DURATION",
          default_value_t = Seconds::new(150), value_parser = within(1..=86_400))]
    pub(crate) rotation_lead: Seconds,
}

/// The settings of `serve`, and how closely to look.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) settings: ServeArgs,
    /// End with exit code 78 where there is anything to warn of
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HealthcheckArgs {
    /// The admin address that the server was started with
    #[arg(
        long,
        env = "POSTERN_ADMIN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9001",
        value_parser = ip_address_and_port
    )]
    pub(crate) admin_listen: SocketAddr,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Print the keys: id, role and times
    Show(KeysShowArgs),
    /// Publish a next key, which signs a lead later; print its id and when that is
    Rotate(KeysRotateArgs),
    /// End the validity of a key at once; the current one is replaced by the next or a fresh one
    // One id in 4096 begins with -h: asking for help instead would look like a success.
    #[command(disable_help_flag = true)]
    Revoke(KeysRevokeArgs),
    /// Write the stored keys anew: encrypted with the key-encryption key, or in clear without one
    Reencrypt(KeyArgs),
    /// Print the public key as the key endpoint hands it out; not with hmac, where it is a secret
    ExportPublic(KeyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) signing: SigningArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeysShowArgs {
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeysRotateArgs {
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    #[command(flatten)]
    pub(crate) lead: LeadArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeysRevokeArgs {
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    /// The key's id, as keys show prints it
    #[arg(value_name = "KID", allow_hyphen_values = true, value_parser = key_id)]
    pub(crate) kid: KeyId,
    /// Look again after this time [35s], when every server has read the store, and fail unless the store
    /// still says that the key is revoked
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "35",
        value_parser = within(1..=86_400)
    )]
    pub(crate) wait: Option<Seconds>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

fn key_id(text: &str) -> Result<KeyId, &'static str> {
    KeyId::new(text).ok_or("expected the id of a key, as auth-server keys show prints it")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_key_id_may_begin_with_a_hyphen() {
        for kid in ["-abc", "-h", "--x_", "abc"] {
            for words in [
                vec![kid, "--store", "file:x"],
                vec!["--store", "file:x", kid],
            ] {
                let words = ["auth-server", "keys", "revoke"].into_iter().chain(words);
                let cli = Cli::try_parse_from(words).unwrap();
                let Command::Keys(KeysCommand::Revoke(args)) = cli.command else {
                    unreachable!("revoke was asked for")
                };
                assert_eq!(args.kid.as_str(), kid);
                assert_eq!(args.keys.store.store, "file:x");
            }
        }
    }
}
