//! The command line of `token`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use runtime::command_line::seconds::{Seconds, within};

use super::KeyArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Read a token from standard input and tell what it says, whether it is accepted, and why not
    Inspect(TokenInspectArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TokenInspectArgs {
    /// The keys to judge by are those in the store
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    /// Judge by the public key in this file instead
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// The issuer that is asked for
    #[arg(
        long,
        env = "POSTERN_ISSUER",
        value_name = "NAME",
        default_value = "auth"
    )]
    pub(crate) issuer: String,
    /// Clock difference granted
    #[arg(long, env = "POSTERN_LEEWAY", value_name = "DURATION",
          default_value_t = Seconds::new(30), value_parser = within(0..=300))]
    pub(crate) leeway: Seconds,
    /// Judge as if it were then: seconds since the epoch, or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = contract::explain::report::parse_moment)]
    pub(crate) at: Option<i64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
