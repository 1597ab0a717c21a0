//! Access lines, and the users that they name.

pub(crate) use postern_process::logs::access_log::{AccessLine, AccessLog, LoggedPath};
use postern_token::claims::user_details::CurrentUserDetails;

/// The part of a user that access lines name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LoggedUser {
    /// Nothing.
    #[default]
    Off,
    /// The user's id.
    Id,
    /// The user's account.
    Account,
}

impl LoggedUser {
    /// Returns the name of the user that `details` reads, which costs time.
    pub(crate) fn name(
        self,
        details: impl FnOnce() -> Option<CurrentUserDetails>,
    ) -> Option<String> {
        match self {
            Self::Off => None,
            Self::Id => details()?.id,
            Self::Account => details()?.account,
        }
    }
}
