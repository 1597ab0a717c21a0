//! Schema of the users file: TOML, one `[[user]]` table each.

use clap::Args;
use postern_process::command_line::member;
use postern_process::files::toml_error::TomlError;
use serde::{Deserialize, Serialize};

use crate::accounts::grants::{Audience, FurtherClaims, Scope};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct UsersDocument {
    #[serde(default, rename = "user")]
    pub(crate) users: Vec<UserEntry>,
}

/// One `[[user]]` table, and what `user add` writes of it.
#[derive(Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct UserEntry {
    /// The user's login name
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) account: String,
    /// An argon2id PHC string
    #[arg(skip)]
    pub(crate) password: String,
    /// Identifies the user to other services; it stays when the account changes
    #[arg(skip)]
    pub(crate) id: String,
    /// Display name [default: the account]
    #[arg(long, value_name = "NAME")]
    pub(crate) nick_name: Option<String>,
    /// Telephone number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) telephone: Option<String>,
    /// Address of the user's picture
    #[arg(long, value_name = "URL")]
    pub(crate) avatar: Option<String>,
    /// User type [default: member]
    #[arg(long, value_name = "TYPE")]
    pub(crate) user_type: Option<String>,
    /// Tenant
    #[arg(long, value_name = "ID")]
    pub(crate) tenant_id: Option<String>,
    /// Grade
    #[arg(long, value_name = "GRADE")]
    pub(crate) grade: Option<String>,
    /// Keeps the user from logging in
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) disabled: bool,
    /// In place of the server's `--audience`
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) audience: Vec<Audience>,
    /// Scope of the user's tokens: values with spaces between them
    #[arg(long, value_name = "SCOPE")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) scope: Option<Scope>,
    /// Role of the user's tokens, a member of the claim `roles`; repeatable
    #[arg(long = "role", value_name = "ROLE", value_delimiter = ',', value_parser = member::<String>)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) roles: Vec<String>,
    /// Further claims. A table, so it comes last
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "FurtherClaims::is_empty")]
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub(crate) claims: FurtherClaims,
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
    /// Parses the file; the error holds no password, hashed or not.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| TomlError::new(&error, text).to_string())
    }
}
