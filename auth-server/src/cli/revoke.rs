//! The command line of `revoke`.

use clap::{ArgGroup, Args};
use secrecy::SecretString;

use super::store::StoreArgs;
use crate::accounts::applications::AppId;

/// In characters; ids of our own tokens have 22.
const MAX_ID: usize = 128;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("revoked").required(true))]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The token with this `jti`, or a whole access token
    ///
    /// As token inspect and the audit line login_succeeded show it; an unknown one is recorded all
    /// the same
    // Not parsed here: an error of the command line quotes the value, which may be a token.
    #[arg(long, value_name = "ID", group = "revoked", allow_hyphen_values = true)]
    pub(crate) jti: Option<SecretString>,
    /// The tokens of the user with this id (`sub`, `userId`)
    #[arg(
        long,
        value_name = "ID",
        group = "revoked",
        allow_hyphen_values = true,
        value_parser = id
    )]
    pub(crate) user: Option<String>,
    /// The issuer of that user, where it is another one than this server: its tokens end at sidecars
    ///
    /// Then the id is the `sub` of its tokens
    #[arg(long, value_name = "ISS", requires = "user", value_parser = id)]
    pub(crate) issuer: Option<String>,
    /// The tokens that this application got for itself
    #[arg(long, value_name = "ID", group = "revoked")]
    pub(crate) app: Option<AppId>,
    /// All tokens: every user has to log in again
    #[arg(long, group = "revoked")]
    pub(crate) all: bool,
}

/// Accepts what ids of users and tokens may be.
///
/// # Errors
/// A text that does not quote the id.
pub(crate) fn id(text: &str) -> Result<String, &'static str> {
    if (1..=MAX_ID).contains(&text.chars().count()) && !text.contains(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err("expected 1 to 128 characters, none of them a control character")
    }
}
