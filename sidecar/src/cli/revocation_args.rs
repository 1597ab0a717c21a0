//! Revoked tokens: if and how the list of the auth server counts.

use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};
use runtime::command_line::seconds::{Seconds, at_least_one};
use runtime::command_line::serialize::word;
use serde::{Serialize, Serializer};

use super::policy_args::ISSUERS;

/// Use of the auth server's revocation list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RevocationMode {
    /// No list is fetched.
    Off,
    /// The last fetched list counts, however old it is.
    On,
    /// No token counts without a fresh list.
    Required,
}

/// Use of the auth server's revocation list, and its age.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Keys")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct RevocationArgs {
    /// Reject revoked tokens by the auth server's list [default: on with an auth server]
    ///
    /// It is fetched with the key. on: also while the list cannot be fetched again; required:
    /// tokens get 503 revocations_stale once the list is older than --max-revocation-age
    #[arg(
        long,
        env,
        value_enum,
        hide_default_value = true,
        default_value_if("auth_server", ArgPredicate::IsPresent, "on"),
        conflicts_with_all = ISSUERS,
        value_name = "MODE"
    )]
    #[serde(serialize_with = "word_if_any")]
    pub(crate) revocations: Option<RevocationMode>,

    /// Fetch the revocation list this often beside the key's schedule; 0: only with the key
    ///
    /// A logout then takes effect sooner; an unchanged list is a short response
    #[arg(long, env, default_value_t = Seconds::new(0), value_name = "DURATION")]
    pub(crate) revocation_poll: Seconds,

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

fn word_if_any<S: Serializer>(
    mode: &Option<RevocationMode>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match mode {
        Some(mode) => word(mode, serializer),
        None => serializer.serialize_none(),
    }
}
