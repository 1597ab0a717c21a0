//! Schema of the users file: TOML, one `[[user]]` table each.

use runtime::files::toml_error::TomlError;
use serde::{Deserialize, Serialize};

use crate::grants::{Audience, FurtherClaims, Scope};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct UsersDocument {
    #[serde(default, rename = "user")]
    pub(crate) users: Vec<UserEntry>,
}

/// One `[[user]]` table.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// The secret of verification codes, in base32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) totp: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) disabled: bool,
    /// In place of the server's `--audience`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) audience: Vec<Audience>,
    /// Values with spaces between them.
    #[serde(default, skip_serializing_if = "Scope::is_empty")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) scope: Scope,
    /// The claim `roles`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) roles: Vec<String>,
    /// Further claims. A table, so it comes last.
    #[serde(default, skip_serializing_if = "FurtherClaims::is_empty")]
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub(crate) claims: FurtherClaims,
}

/// Omits the password and the secret of codes.
impl std::fmt::Debug for UserEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserEntry")
            .field("account", &self.account)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl UsersDocument {
    /// Parses the file; the error holds no password, hashed or not.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| TomlError::new(&error, text).to_string())
    }
}
