//! The arguments of `explain`.

use clap::Args;
use clap::builder::PossibleValuesParser;
use postern_contract::rejection::{Maker, Rejection};

use super::AdminArgs;
use crate::telemetry::outcome::Outcome;

/// Returns the parser of the outcomes without a rejection, and of the reason codes.
fn outcomes() -> PossibleValuesParser {
    let codes = Rejection::made_by(Maker::Sidecar).map(Rejection::reason);
    PossibleValuesParser::new(
        [
            Outcome::Verified.as_str(),
            Outcome::Passed.as_str(),
            Outcome::Responded.as_str(),
            Outcome::REPORTED,
        ]
        .into_iter()
        .chain(codes),
    )
}

/// The request, and the sidecar that explains it by its own settings.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Path, with a query if there is one, as in the request: /orders/42?page=2
    ///
    /// Of a URL, its host becomes the Host
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,

    /// Method of the request
    #[arg(long, short = 'X', default_value = "GET", value_name = "METHOD")]
    pub(crate) method: String,

    /// Header of the request, 'NAME: VALUE'; repeatable
    ///
    /// @- reads headers from standard input, line by line: other users of the machine can see what
    /// stands on a command line
    #[arg(
        long = "header",
        short = 'H',
        value_name = "HEADER",
        allow_hyphen_values = true
    )]
    pub(crate) headers: Vec<String>,

    /// Explain at this time: seconds since the epoch, or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = postern_token::times::parse_moment)]
    pub(crate) at: Option<i64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// End with exit code 1 unless this is the outcome
    ///
    /// `verified`, `passed`, `responded`, in report-only mode `reported`, or the reason code of the
    /// rejection, such as token_expired
    #[arg(long, value_name = "OUTCOME", value_parser = outcomes(), hide_possible_values = true)]
    pub(crate) expect: Option<String>,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}
