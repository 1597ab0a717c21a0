//! The source of the verification keys, the time for which they are trusted, and revoked tokens.

use std::path::PathBuf;

use clap::builder::ArgPredicate;
use clap::{ArgGroup, Args, ValueEnum};
use postern_process::command_line::name;
use postern_process::command_line::seconds::{Seconds, at_least_one};
use postern_process::command_line::serialize::{displayed, displayed_if_any};
use postern_token::keys::signing_type::SigningType;
use secrecy::SecretString;
use serde::Serialize;

use super::policy_args::ISSUERS;
use crate::issuers::task::schedule::Schedule;
use postern_process::command_line::texts::{Name, Text};

/// The group of flags for the source of the verification keys: one is given, unless the file has
/// `[[issuer]]` tables.
const KEY_SOURCE: &str = "key_source";

/// The source of the verification keys, the credentials for it, and the use of its revocation list.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Keys", group = ArgGroup::new(KEY_SOURCE))]
#[serde(rename_all = "kebab-case")]
pub(crate) struct KeyArgs {
    /// The auth server with its context path: http://HOST:PORT/CONTEXT
    ///
    /// Also https; dns://NAME:PORT/CONTEXT to resolve the name at each tick and rotate its
    /// addresses; nacos://[USER@]HOST[:PORT]/CONTEXT for the instances that a registry lists, with
    /// ?password-file=FILE&namespace=ID&group=NAME&service=NAME&server-name=NAME&ca=FILE and
    /// registry-tls=on|off; both also with +https
    #[arg(
        long,
        env,
        group = KEY_SOURCE,
        requires = "app_id",
        conflicts_with = "claim",
        value_name = "URL"
    )]
    pub(crate) auth_server: Option<String>,

    /// The auth server whose revocation list ends tokens of other issuers, as at a logout there
    ///
    /// Written as --auth-server, which needs no such flag: its list does so too. Without an application
    #[arg(long, env, conflicts_with = "auth_server", value_name = "URL")]
    pub(crate) revocations_from: Option<String>,

    /// Your identity provider, by the address that is the iss of its tokens
    ///
    /// In place of the auth server; its discovery document names the JWK Set. kubernetes:/// is the
    /// cluster of this pod, whose service accounts have tokens
    #[arg(
        long,
        env,
        group = KEY_SOURCE,
        requires = "audience",
        conflicts_with = "issuer",
        value_name = "URL"
    )]
    pub(crate) issuer_url: Option<Text<Name>>,

    /// Keys of any issuer: the address of its JWK Set, or a file
    ///
    /// The file holds a JWK Set or public keys in PEM, and is read again at each tick
    #[arg(
        long,
        env,
        group = KEY_SOURCE,
        requires_all = ["issuer", "audience"],
        value_parser = name,
        value_name = "URL|FILE"
    )]
    pub(crate) jwks: Option<String>,

    /// PEM file of the authorities to trust with https in place of the system's
    ///
    /// Of the auth server or any issuer; read again when it changes
    #[arg(long, env, value_name = "FILE")]
    pub(crate) auth_ca: Option<PathBuf>,

    /// Certificate chain in PEM to present to an auth server that requires one
    #[arg(long, env, requires = "auth_client_key", value_name = "FILE")]
    pub(crate) auth_client_cert: Option<PathBuf>,

    /// Private key of that certificate in PEM
    #[arg(long, env, requires = "auth_client_cert", value_name = "FILE")]
    pub(crate) auth_client_key: Option<PathBuf>,

    /// Application id for the auth server
    #[arg(long, env, conflicts_with_all = ISSUERS, value_name = "ID")]
    pub(crate) app_id: Option<String>,

    /// Application secret for the auth server
    #[arg(
        long,
        env,
        hide_env_values = true,
        // One generated secret in 64 begins with a hyphen.
        allow_hyphen_values = true,
        conflicts_with_all = ISSUERS,
        value_parser = secret,
        value_name = "SECRET"
    )]
    #[serde(skip)]
    pub(crate) app_secret: Option<SecretString>,

    /// File that holds the application secret
    #[arg(
        long,
        env,
        conflicts_with_all = ISSUERS,
        conflicts_with = "app_secret",
        value_name = "FILE"
    )]
    pub(crate) app_secret_file: Option<PathBuf>,

    /// Signing type of the auth server: rsa (the default), hmac or ecdsa
    ///
    /// It is configured with the same
    #[arg(
        long,
        env,
        default_value_if("auth_server", ArgPredicate::IsPresent, "rsa"),
        conflicts_with_all = ISSUERS,
        value_name = "TYPE"
    )]
    #[serde(serialize_with = "displayed_if_any")]
    pub(crate) signing_type: Option<SigningType>,

    /// Allow --signing-type hmac: this sidecar then holds the secret that issues tokens
    #[arg(long, env)]
    pub(crate) trust_shared_secret: bool,

    /// When to fetch keys and revocation list: cron expression with seconds, in UTC
    ///
    /// '*/5 * * * * *' is every five seconds; unchanged ones are short responses
    #[arg(long, env, default_value = "0 * * * * *", value_name = "CRON")]
    #[serde(serialize_with = "displayed")]
    pub(crate) refresh_cron: Schedule,

    /// File that keeps the last fetched keys for a start while no key server is reachable
    ///
    /// --max-key-age counts on from the fetch. Readable by its owner only. Not with hmac, where the
    /// key is a secret
    #[arg(long, env, value_name = "FILE")]
    pub(crate) key_cache: Option<PathBuf>,

    /// Time for which keys are trusted that cannot be fetched again; 0: forever
    ///
    /// For example while the auth server is down; then tokens get 503 auth_keys_stale
    #[arg(
        long,
        env,
        default_value_t = Seconds::new(86_400),
        value_name = "DURATION"
    )]
    pub(crate) max_key_age: Seconds,

    /// Reject revoked tokens by the auth server's list [default: on with an auth server]
    ///
    /// It is fetched with the key. on: also while the list cannot be fetched again; required:
    /// tokens get 503 revocations_stale once the list is older than --max-revocation-age
    #[arg(
        long,
        env,
        value_enum,
        hide_default_value = true,
        default_value_ifs([
            ("auth_server", ArgPredicate::IsPresent, "on"),
            ("revocations_from", ArgPredicate::IsPresent, "on"),
        ]),
        value_name = "MODE"
    )]
    pub(crate) revocations: Option<RevocationMode>,

    /// Time for which a revocation list counts with --revocations required
    #[arg(
        long,
        env,
        default_value_t = Seconds::new(300),
        value_parser = at_least_one,
        value_name = "DURATION"
    )]
    pub(crate) max_revocation_age: Seconds,
}

/// Parses a secret as a [`name`]: quotes and blanks of a file of variables are no part of it.
fn secret(text: &str) -> Result<SecretString, &'static str> {
    name(text).map(SecretString::from)
}

/// Use of the auth server's revocation list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RevocationMode {
    /// No list is fetched.
    Off,
    /// The last fetched list counts, however old it is.
    On,
    /// No token counts without a fresh list.
    Required,
}
