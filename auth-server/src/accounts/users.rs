//! Users: the contract's built-in user, or the users of a file.
//!
//! A store verifies a password; rate limits and the number of simultaneous checks are in
//! `authenticate`.

pub(crate) mod authenticate;
pub(crate) mod builtin;
pub(crate) mod file;
pub(crate) mod password;
pub(crate) mod recorded;
pub(crate) mod reload;
pub(crate) mod toml_schema;
pub(crate) mod users_file;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use postern_contract::login::{LoginRequest, UserInfo};
use postern_token::claims::ExtraInfo;

use crate::accounts::grants::Grant;

/// An authenticated user, as the claims describe it (contract §2.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) id: String,
    pub(crate) account: String,
    pub(crate) nick_name: String,
    pub(crate) extra_info: ExtraInfo,
    /// Scope, audience and further claims; empty for the built-in user.
    pub(crate) grant: Grant,
}

/// A user who may log in at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PresentUser {
    pub(crate) user: User,
    /// A digest that changes with the account and with the password.
    pub(crate) credentials: String,
}

/// The member user type (contract §2.3, §2.4).
pub(crate) const MEMBER: &str = "member";

/// The user type of an application's token: services distinguish it from a user by this, or by
/// `clientId`.
pub(crate) const APPLICATION: &str = "application";

/// The users of one installation.
pub(crate) trait UserStore: fmt::Debug + Send + Sync {
    /// Verifies the credentials. Returns `None` for an unknown account, a wrong password and a
    /// disabled user alike, after the same work.
    fn authenticate(&self, request: &LoginRequest) -> Option<PresentUser>;

    /// Returns the user of an account without a check of credentials; `None` for a user who may not log in.
    fn present(&self, account: &str) -> Option<PresentUser>;

    /// Returns true for the account or the id of a user. An application of that name could be taken for the
    /// user (RFC 9700 §4.15).
    fn is_user(&self, name: &str) -> bool;

    /// Returns false while it is unknown who may log in: the file was replaced where this program
    /// cannot see it.
    fn is_current(&self) -> bool {
        true
    }

    /// Returns true where passwords are verified, so that they can be guessed and a check is slow.
    fn checks_passwords(&self) -> bool;
}

/// `--users`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UsersLocation {
    Builtin,
    File(PathBuf),
}

impl FromStr for UsersLocation {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "builtin" => Ok(Self::Builtin),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            _ => Err("expected builtin, or file:FILE such as file:users.toml"),
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
    /// Returns the `info` block of the login response (contract §2.3).
    pub(crate) fn info(&self) -> UserInfo {
        let extra = self.extra_info.clone();
        UserInfo {
            tenant_id: extra.tenant_id,
            telephone: extra.telephone,
            user_type: extra.user_type,
            avatar: extra.avatar,
            nick_name: Some(self.nick_name.clone()),
            grade: extra.grade,
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
            assert!(text.parse::<UsersLocation>().is_err(), "{text}");
        }
    }
}
