//! What `explain` takes.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use contract::keys::signing_type::SigningType;

use super::AdminArgs;
use super::log_args::TracingArgs;
use super::policy_args::{IssuerTokenArgs, RulesArgs};
use super::service_args::ServiceArgs;

/// The settings of which each says that nobody is asked. None is a variable: one that is meant for
/// `serve` must not make an answer from files of what was a question to the running sidecar.
const OFFLINE: &str = "offline";

/// Without a file of keys the running sidecar is asked, and its own settings count.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new(OFFLINE))]
pub(crate) struct ExplainArgs {
    /// Path, with a query if there is one, as it stands in the request: /orders/42?page=2. Of a URL, its host
    /// becomes the Host
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,

    /// Method of the request
    #[arg(long, short = 'X', default_value = "GET", value_name = "METHOD")]
    pub(crate) method: String,

    /// Header of the request, 'NAME: VALUE'; may be repeated. @- reads headers from standard input,
    /// line by line: other users of the machine can see what stands on a command line
    #[arg(
        long = "header",
        short = 'H',
        value_name = "HEADER",
        allow_hyphen_values = true
    )]
    pub(crate) headers: Vec<String>,

    /// Judge as if it were then: seconds since the epoch, or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = contract::explain::report::parse_moment)]
    pub(crate) at: Option<i64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// End with exit code 1 unless this becomes of the request: verified, passed, answered, or the reason code of
    /// its refusal, such as token_expired
    #[arg(long, value_name = "OUTCOME")]
    pub(crate) expect: Option<String>,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,

    /// Ask nobody: judge by the auth server's key in this file, by what its key endpoint answered or by its
    /// JWK Set, and by the settings below, which are those of serve
    #[arg(long, group = OFFLINE, conflicts_with_all = ["algorithms", "claim"], value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// The same for tokens of another issuer: a file with its JWK Set
    #[arg(long, group = OFFLINE, requires_all = ["issuer", "audience"], value_name = "FILE")]
    pub(crate) jwks_file: Option<PathBuf>,

    /// The same: a file with the issuer's public key, or several, in PEM
    #[arg(long, group = OFFLINE, requires_all = ["issuer", "audience"], value_name = "FILE")]
    pub(crate) public_key_file: Option<PathBuf>,

    /// How the auth server signs tokens: rsa, hmac or ecdsa. It is configured with the same
    #[arg(
        long,
        env = "POSTERN_SIGNING_TYPE",
        default_value_t,
        conflicts_with_all = ["jwks_file", "public_key_file"],
        value_name = "TYPE"
    )]
    pub(crate) signing_type: SigningType,

    // The groups of settings come last: the heading of one holds for every flag after it.
    #[command(flatten)]
    pub(crate) rules: RulesArgs,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,

    #[command(flatten)]
    pub(crate) issuer_tokens: IssuerTokenArgs,

    #[command(flatten)]
    pub(crate) tracing: TracingArgs,
}
