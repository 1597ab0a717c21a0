//! The arguments of `explain`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use wire::keys::signing_type::SigningType;

use super::AdminArgs;
use super::issuer_table::IssuerTable;
use super::log_args::TracingArgs;
use super::policy_args::{IssuerTokenArgs, RulesArgs};
use super::service_args::ServiceArgs;

/// The group of flags for explaining without a running sidecar. None is a variable: one that is
/// meant for `serve` must not switch from the running sidecar to files.
const OFFLINE: &str = "offline";

/// Without a key file the running sidecar explains, by its own settings.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new(OFFLINE))]
pub(crate) struct ExplainArgs {
    /// Path, with a query if there is one, as it stands in the request: /orders/42?page=2. Of a
    /// URL, its host becomes the Host
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

    /// Explain at this time: seconds since the epoch, or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = wire::explain::report::parse_moment)]
    pub(crate) at: Option<i64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// End with exit code 1 unless this is the outcome: `verified`, `passed`, `answered`, or the
    /// reason code of the rejection, such as token_expired
    #[arg(long, value_name = "OUTCOME")]
    pub(crate) expect: Option<String>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,

    /// `[[issuer]]` of the file, which rules name.
    #[arg(skip)]
    pub(crate) issuers: Vec<IssuerTable>,

    /// Query no sidecar: use the auth server's key in this file, the response of its key endpoint
    /// or its JWK Set, and the settings below, which are those of serve
    #[arg(long, group = OFFLINE, conflicts_with_all = ["algorithms", "claim"], value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// The same for tokens of another issuer: a file with its JWK Set
    #[arg(long, group = OFFLINE, requires_all = ["issuer", "audience"], value_name = "FILE")]
    pub(crate) jwks_file: Option<PathBuf>,

    /// The same: a file with the issuer's public key, or several, in PEM
    #[arg(long, group = OFFLINE, requires_all = ["issuer", "audience"], value_name = "FILE")]
    pub(crate) public_key_file: Option<PathBuf>,

    /// Signing type of the auth server: rsa, hmac or ecdsa. It is configured with the same
    #[arg(
        long,
        env,
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
