//! The command line. Every flag of `serve` is a `POSTERN_*` variable and a key of the configuration
//! file as well; the doc comments are the help text.

pub(crate) mod application;
pub(crate) mod dev;
pub(crate) mod logout_table;
pub(crate) mod revoke;
mod serve;
pub(crate) mod store;
pub(crate) mod token;
pub(crate) mod user;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use postern_process::command_line::completions::CompletionsArgs;
use postern_process::command_line::seconds::{Seconds, within};
use postern_process::command_line::serialize::displayed;
use postern_process::command_line::{ConfigFile, WithFile};
use postern_process::exit::ExitError;
use postern_token::keys::KeyId;
use postern_token::keys::signing_type::SigningType;
use postern_transport::net::listener::ip_address_and_port;
use serde::{Deserialize, Serialize};

use self::application::ApplicationCommand;
use self::dev::DevArgs;
use self::logout_table::LogoutTable;
use self::revoke::RevokeArgs;
pub(crate) use self::serve::ServeArgs;
use self::store::{StoreArgs, StoreCommand};
use self::token::TokenCommand;
use self::user::UserCommand;

/// Issues signed access tokens (JWT) and serves the key that verifies them
#[derive(Debug, Parser)]
#[command(name = "auth-server", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl WithFile for Cli {
    const KEYS: &'static [&'static str] = &["logout"];
    const SUMMARY: &'static str = "listen tls-cert tls-key store key-encryption-key-file signing-type \
        token-lifetime issuer refresh-tokens users applications-dir";

    fn take(&mut self, file: &ConfigFile) -> Result<(), ExitError> {
        let settings = match &mut self.command {
            Command::Serve(settings) => &mut **settings,
            Command::Check(check) => &mut check.settings,
            _ => return Ok(()),
        };
        settings.logouts = file.read_only::<FileOnly>()?.logout;
        Ok(())
    }
}

/// The keys of the file alone.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
struct FileOnly {
    logout: Vec<LogoutTable>,
}

const EXAMPLES: &str = "\
Examples:
  auth-server serve --users file:users.toml
  auth-server user add --users file:users.toml --account ada
  auth-server application add --app-id orders
  auth-server keys rotate";

const SERVE_EXAMPLES: &str = "\
Examples:
  One server, its users in a file (auth-server user add):
    auth-server serve --users file:users.toml
  Two servers with one store:
    auth-server serve --store rediss://auth@redis.internal \\
      --store-password-file password --users file:users.toml \\
      --listen 0.0.0.0:9000 --tls-cert server.pem --tls-key server.key
  Settings in a file, tried before:
    auth-server check --config auth.toml
    auth-server serve --config auth.toml";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until SIGTERM or SIGINT
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// Serve on this machine for development and tests: keys in memory, tokens with any claims
    Dev(DevArgs),
    /// Check the configuration of serve, and print it as a file, without secrets
    ///
    /// Its store is read, not changed
    Check(Box<CheckArgs>),
    /// Check if a running server is ready
    Healthcheck(HealthcheckArgs),
    /// Show, rotate and revoke the keys in the store
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Revoke access tokens before they expire: one, or those of a user or an application
    Revoke(RevokeArgs),
    /// Manage the applications that may fetch the verification key
    #[command(subcommand)]
    Application(ApplicationCommand),
    /// Decode and verify a token
    #[command(subcommand)]
    Token(TokenCommand),
    /// Manage the users of a file
    #[command(subcommand)]
    User(UserCommand),
    /// Back up the store
    #[command(subcommand)]
    Store(StoreCommand),
    /// Print the script by which a shell completes commands and flags
    Completions(CompletionsArgs),
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct SigningArgs {
    /// How tokens are signed: rsa (RS256), ecdsa (ES256) or hmac (HS256, shared secret)
    #[arg(long, env, value_name = "TYPE", default_value_t)]
    #[serde(serialize_with = "displayed")]
    pub(crate) signing_type: SigningType,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct LeadArgs {
    /// Time between publishing a next key and signing with it
    #[arg(long, env, value_name = "DURATION",
          default_value_t = Seconds::new(150), value_parser = within(1..=86_400))]
    pub(crate) rotation_lead: Seconds,
}

/// The settings of `serve`, and options of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// End with exit code 78 if there is any warning
    #[arg(long)]
    pub(crate) strict: bool,
    // These come last: a heading holds for every flag after it.
    #[command(flatten)]
    pub(crate) settings: ServeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct HealthcheckArgs {
    /// The admin address that the server was started with
    #[arg(
        long,
        env,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9001",
        value_parser = ip_address_and_port
    )]
    pub(crate) admin_listen: SocketAddr,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Print the keys, each as JSON on a line: id, role and time
    Show(KeyArgs),
    /// Publish a next key, which signs a lead later; print its id and when that is
    Rotate {
        #[command(flatten)]
        keys: KeyArgs,
        #[command(flatten)]
        lead: LeadArgs,
    },
    /// End the validity of a key at once; the current one is replaced by the next or a fresh one
    // One id in 4096 begins with -h: asking for help instead would look like a success.
    #[command(disable_help_flag = true)]
    Revoke(KeysRevokeArgs),
    /// Install the key pair of another system in a store without one: its tokens stay valid
    Import {
        #[command(flatten)]
        keys: KeyArgs,
        /// File that holds the private key: PKCS#8 as PEM, not encrypted; with hmac the shared secret
        #[arg(long, value_name = "FILE")]
        private_key_file: PathBuf,
    },
    /// Encrypt the store with the first key-encryption key, or decrypt it where that is clear; run it twice,
    /// one --store-poll-interval apart
    Reencrypt(KeyArgs),
    /// Print the public key as the key endpoint serves it; not with hmac, where it is a secret
    ExportPublic(KeyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// How tokens are signed: rsa, ecdsa or hmac; by default the type of the stored key pair
    #[arg(long, env, value_name = "TYPE")]
    pub(crate) signing_type: Option<SigningType>,
}

#[derive(Debug, Args)]
pub(crate) struct KeysRevokeArgs {
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    /// The key's id, as keys show prints it
    #[arg(value_name = "KID", allow_hyphen_values = true, value_parser = key_id)]
    pub(crate) kid: KeyId,
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
    use ::tests::tables::reference;

    use super::*;
    use crate::accounts::users::toml_schema::UsersDocument;

    #[test]
    fn the_command_line_is_consistent() {
        postern_process::command_line::command::<Cli>().debug_assert();
    }

    #[test]
    fn the_documents_say_what_the_command_line_takes() {
        let command = postern_process::command_line::command::<Cli>();
        reference::hold_tables(&command);
        let only = schemars::schema_for!(FileOnly).to_value();
        reference::hold_schema("auth-server", &reference::schema(&command, only));
        let users = schemars::schema_for!(UsersDocument).to_value();
        reference::hold_schema("users", &users);
    }

    #[test]
    fn the_short_help_of_serve_is_one_screen() {
        let mut command = postern_process::command_line::command::<Cli>();
        let help = command.find_subcommand_mut("serve").unwrap().render_help();
        let lines = help.to_string().lines().count();
        assert!(lines <= 45, "{lines} lines:\n{help}");
    }

    #[test]
    fn a_key_id_may_begin_with_a_hyphen() {
        for kid in ["-abc", "-h", "--x_", "abc"] {
            for words in [
                vec![kid, "--store", "file:x"],
                vec!["--store", "file:x", kid],
            ] {
                let words = ["auth-server", "keys", "revoke"].into_iter().chain(words);
                let cli = postern_process::command_line::parse_words::<Cli>(words).unwrap();
                let Command::Keys(KeysCommand::Revoke(args)) = cli.command else {
                    unreachable!("the command is revoke")
                };
                assert_eq!(args.kid.as_str(), kid);
                assert_eq!(args.keys.store.store, "file:x");
            }
        }
    }
}
