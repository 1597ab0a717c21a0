//! The command line of `token`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::KeyArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Decode and verify a token from standard input, and print the reason of a rejection
    ///
    /// Ends with exit code 1 unless the token is valid
    Inspect(TokenInspectArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TokenInspectArgs {
    /// The keys in the store
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    /// Verify with the keys in this file instead: PEM, a JWK Set or the secret of hmac
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// The required issuer
    #[arg(long, env, value_name = "NAME", default_value = "auth")]
    pub(crate) issuer: String,
    /// Verify as of this time: seconds since the epoch, or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = postern_token::times::parse_moment)]
    pub(crate) at: Option<i64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
