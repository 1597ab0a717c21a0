//! The command line of `revoke`.

use clap::{ArgGroup, Args};
use secrecy::SecretString;
use wire::explain::report::parse_moment;

use super::store::StoreArgs;
use crate::applications::AppId;
use crate::users::UsersLocation;

/// In characters; ids of our own tokens have 22.
const MAX_ID: usize = 128;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("revoked").required(true))]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The token with this `jti`, or a whole token
    ///
    /// As token inspect and the audit line login_succeeded show it; an unknown one is recorded all
    /// the same
    // Not parsed here: an error of the command line quotes the value, which may be a token.
    #[arg(long, value_name = "ID", group = "revoked", allow_hyphen_values = true)]
    pub(crate) jti: Option<SecretString>,
    /// The tokens of the user with this id (`sub`, `userId`), or with --users of this account
    #[arg(
        long,
        value_name = "ID",
        group = "revoked",
        allow_hyphen_values = true,
        value_parser = id
    )]
    pub(crate) user: Option<String>,
    /// The file of users, in which --user is looked up, as file:FILE
    #[arg(long, env, value_name = "USERS")]
    pub(crate) users: Option<UsersLocation>,
    /// The tokens that this application got for itself
    #[arg(long, value_name = "ID", group = "revoked")]
    pub(crate) app: Option<AppId>,
    /// All tokens: every user has to log in again
    #[arg(long, group = "revoked")]
    pub(crate) all: bool,
    /// Only tokens issued before this time: seconds since the epoch, or 2026-01-31T12:00:00Z
    /// [default: now]
    ///
    /// Up to an hour ahead
    #[arg(long, value_name = "TIME", conflicts_with = "jti", value_parser = parse_moment)]
    pub(crate) before: Option<i64>,
}

/// Accepts what ids of users and tokens may be.
///
/// # Errors
/// A text that does not quote the id.
pub(crate) fn id(text: &str) -> Result<String, &'static str> {
    let fits = (1..=MAX_ID).contains(&text.chars().count());
    if fits && !text.contains(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err("expected 1 to 128 characters, none of them a control character")
    }
}
