//! The command line. Every flag of `serve` is a `POSTERN_*` variable and a key of the configuration
//! file as well; the doc comments are the help text.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use contract::path_patterns::ContextPath;
use contract::signing_type::SigningType;
use process::telemetry::LogFormat;

use crate::applications::AppId;

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
    Check(Box<ServeArgs>),
    /// Ask a running server whether it is ready
    Healthcheck(HealthcheckArgs),
    /// Look at the key pair in the store
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Manage the applications that may fetch the verification key
    #[command(subcommand)]
    Application(ApplicationCommand),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to serve on; port 0 picks a free one, printed as `listening on …`
    #[arg(
        long,
        env = "POSTERN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9000"
    )]
    pub(crate) listen: SocketAddr,
    /// Address of the admin port: /livez, /readyz, /startupz, /metrics
    #[arg(
        long,
        env = "POSTERN_ADMIN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9001"
    )]
    pub(crate) admin_listen: SocketAddr,
    /// Path in front of every route; may be empty
    #[arg(
        long,
        env = "POSTERN_CONTEXT_PATH",
        value_name = "PATH",
        default_value = "/auth"
    )]
    pub(crate) context_path: ContextPath,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) signing: SigningArgs,
    /// Seconds between two looks into the store
    #[arg(long, env = "POSTERN_STORE_REREAD", value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) store_reread: u32,
    /// Seconds that an access token is valid
    #[arg(long, env = "POSTERN_TOKEN_LIFETIME", value_name = "SECONDS", default_value_t = 18_000,
          value_parser = clap::value_parser!(u32).range(1..=31_536_000))]
    pub(crate) token_lifetime: u32,
    /// The tokens' `iss` claim, which is required of tokens in turn
    #[arg(long, env = "POSTERN_ISSUER", value_name = "NAME", default_value = "auth",
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) issuer: String,
    /// Seconds of clock difference granted to a token's `exp` and `nbf`
    #[arg(long, env = "POSTERN_LEEWAY", value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(0..=300))]
    pub(crate) leeway: u32,
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
    pub(crate) static_dir: Option<PathBuf>,
    /// Seconds for a request's header to arrive, and again for its body
    #[arg(long, env = "POSTERN_REQUEST_TIMEOUT", value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=300))]
    pub(crate) request_timeout: u32,
    /// Who may log in. builtin: any name with any password is the same fixed user
    #[arg(
        long,
        env = "POSTERN_USERS",
        value_name = "KIND",
        default_value = "builtin"
    )]
    pub(crate) users: Users,
    /// Where the server registers itself
    #[arg(
        long,
        env = "POSTERN_REGISTRY",
        value_name = "KIND",
        default_value = "none"
    )]
    pub(crate) registry: Registry,
    #[command(flatten)]
    pub(crate) logs: LogArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// Where the key pair lives: file:DIR for one server, redis://[USER@]HOST[:PORT][/DB] for several
    #[arg(
        long,
        env = "POSTERN_STORE",
        value_name = "STORE",
        default_value = "file:./data"
    )]
    pub(crate) store: String,
    /// File holding the password of the redis store
    #[arg(long, env = "POSTERN_STORE_PASSWORD_FILE", value_name = "FILE")]
    pub(crate) store_password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SigningArgs {
    /// How tokens are signed: rsa (RS256), ecdsa (ES256) or hmac (HS256, shared secret)
    #[arg(
        long,
        env = "POSTERN_SIGNING_TYPE",
        value_name = "TYPE",
        default_value_t
    )]
    pub(crate) signing_type: SigningType,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// How a log line is written, on standard error
    #[arg(
        long,
        env = "POSTERN_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub(crate) log_format: LogFormat,
    /// What is logged: error, warn, info, debug, or directives such as info,auth_server=debug
    #[arg(
        long,
        env = "POSTERN_LOG_LEVEL",
        value_name = "LEVEL",
        default_value = "info"
    )]
    pub(crate) log_level: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Users {
    Builtin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Registry {
    None,
}

#[derive(Debug, Args)]
pub(crate) struct HealthcheckArgs {
    /// The admin address that the server was started with
    #[arg(
        long,
        env = "POSTERN_ADMIN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9001"
    )]
    pub(crate) admin_listen: SocketAddr,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Print the key's id, type and place
    Show(KeyArgs),
    /// Print the public key as the key endpoint hands it out
    ExportPublic(KeyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) signing: SigningArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApplicationCommand {
    /// Register an application and print its generated secret, once
    Add(ApplicationAddArgs),
    /// Print the registered applications
    List(StoreArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ApplicationAddArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The application's id: 1 to 128 characters without white space
    #[arg(long, value_name = "ID")]
    pub(crate) app_id: AppId,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
