//! Schema of the users file: TOML, one `[[user]]` table each.

use runtime::toml_error::TomlError;
use serde::{Deserialize, Serialize};

use super::users_file::UsersFileError;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsersDocument {
    #[serde(default, rename = "user")]
    pub(crate) users: Vec<UserEntry>,
}

/// One `[[user]]` table.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct UserEntry {
    pub(crate) account: String,
    /// An argon2id PHC string.
    pub(crate) password: String,
    /// Identifies the user to other services; it stays when the account changes.
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nick_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) telephone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) avatar: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grade: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) disabled: bool,
}

/// Omits the password.
impl std::fmt::Debug for UserEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserEntry")
            .field("account", &self.account)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl UsersDocument {
    pub(crate) fn parse(text: &str) -> Result<Self, UsersFileError> {
        Ok(toml::from_str(text).map_err(|error| TomlError::new(&error, text))?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::password::tests::cheap;
    use super::*;

    pub(crate) fn entry(account: &str) -> UserEntry {
        UserEntry {
            account: account.into(),
            password: cheap("p"),
            id: format!("id of {account}"),
            nick_name: Some("N \"quoted\"".into()),
            ..UserEntry::default()
        }
    }
}
