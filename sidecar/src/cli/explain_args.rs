//! What `explain` takes.

use std::path::PathBuf;

use clap::Args;
use contract::signing_type::SigningType;

use super::AdminArgs;
use super::rules_args::RulesArgs;

/// Without --key-file the running sidecar is asked, and its own settings count.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Path, with a query if there is one, as it stands in the request: /orders/42?page=2
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
    #[arg(long, value_name = "TIME", value_parser = contract::explanation::parse_moment)]
    pub(crate) at: Option<i64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,

    /// Ask nobody: judge by the key in this file and by the settings below, which are those of serve
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) rules: RulesArgs,

    /// How tokens are signed: rsa, hmac or ecdsa. The auth server is configured with the same
    #[arg(
        long,
        env = "POSTERN_SIGNING_TYPE",
        default_value_t,
        value_name = "TYPE"
    )]
    pub(crate) signing_type: SigningType,
}
