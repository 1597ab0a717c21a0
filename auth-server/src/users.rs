//! Who may log in: the contract's built-in user, or the users of a file.
//!
//! A store says who somebody is; how often one may try, and how much of it happens at once, is
//! `authenticator`'s business.

pub(crate) mod authenticate;
pub(crate) mod builtin;
pub(crate) mod changes;
pub(crate) mod edit;
pub(crate) mod file;
mod hash_pool;
pub(crate) mod password;
pub(crate) mod reload;
pub(crate) mod toml_schema;
mod unknown_names;
pub(crate) mod users_file;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use contract::api::login::{LoginRequest, UserInfo};
use contract::token::claims::ExtraInfo;

/// A user that has logged in: what a token says of him (contract §2.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) id: String,
    pub(crate) account: String,
    pub(crate) nick_name: String,
    pub(crate) extra_info: ExtraInfo,
}

/// The member user type of contract §2.3 and §2.4.
pub(crate) const MEMBER: &str = "member";

/// The users of one installation.
pub(crate) trait UserStore: fmt::Debug + Send + Sync {
    /// Whoever `request` proves to be. `None` for an unknown account, a wrong password and a disabled
    /// user alike, after the same work.
    fn authenticate(&self, request: &LoginRequest) -> Option<User>;

    /// Whether there is such an account. For logs: no answer to a stranger may depend on it.
    fn knows(&self, account: &str) -> bool;

    /// Whether passwords mean anything here: then they can be guessed, and checking one takes long.
    fn checks_passwords(&self) -> bool;
}

/// `--users`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UsersLocation {
    Builtin,
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected builtin, or file:FILE such as file:users.toml")]
pub(crate) struct InvalidUsers;

impl FromStr for UsersLocation {
    type Err = InvalidUsers;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "builtin" => Ok(Self::Builtin),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(PathBuf::from(path))),
            _ => Err(InvalidUsers),
        }
    }
}

impl fmt::Display for UsersLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin => f.write_str("builtin"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl User {
    /// The `info` block of the login answer (contract §2.3).
    pub(crate) fn info(&self) -> UserInfo {
        let ExtraInfo {
            avatar,
            telephone,
            user_type,
            tenant_id,
            grade,
        } = self.extra_info.clone();
        UserInfo {
            tenant_id,
            telephone,
            user_type,
            avatar,
            nick_name: Some(self.nick_name.clone()),
            grade,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn users_are_the_built_in_one_or_a_file_s() {
        for text in ["builtin", "file:users.toml", "file:/etc/auth/users.toml"] {
            assert_eq!(text.parse::<UsersLocation>().unwrap().to_string(), text);
        }
        for text in ["", "file", "file:", "builtin:", "users.toml", "ldap:x"] {
            assert_eq!(text.parse::<UsersLocation>(), Err(InvalidUsers), "{text}");
        }
    }
}
