//! Login: request (contract §2.2) and response (contract §2.3).

use std::fmt;

use serde::Serialize;

use crate::rejection::Rejection;
use postern_http::folding::composed;
use postern_http::text_encoding::BYTE_ORDER_MARK;
use postern_token::strict_json::{self, Map, Value};

/// Account and password of a login; its `code` is accepted and not evaluated (contract §2.2).
#[derive(Clone, PartialEq, Eq)]
pub struct LoginRequest {
    /// The account, not empty, composed as accounts are.
    pub username: String,
    /// The password, not empty.
    pub password: String,
}

/// Never prints the password.
impl fmt::Debug for LoginRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginRequest")
            .field("username", &self.username)
            .field("password", &"[redacted]")
            .finish()
    }
}

impl LoginRequest {
    /// Parses the body of a login.
    ///
    /// # Errors
    /// [`Rejection::LoginIncomplete`] if the body or a member is absent, null or empty (contract
    /// §4.1 rule 1); [`Rejection::BodyMalformed`] if the body is not a JSON object, repeats a
    /// member or gives account or password the wrong type.
    pub fn from_json(body: &[u8]) -> Result<Self, Rejection> {
        // Clients on Windows may send a byte order mark.
        let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
        if Self::is_absent(body) {
            return Err(Rejection::LoginIncomplete);
        }
        let mut members = match strict_json::value(body) {
            Ok(Value::Object(members)) => members,
            // A value such as `null`, which clients send in place of a missing body.
            Ok(value) if value.says_nothing() => return Err(Rejection::LoginIncomplete),
            _ => return Err(Rejection::BodyMalformed),
        };
        let username = text(&mut members, "username")?;
        let password = text(&mut members, "password")?;
        match (username, password) {
            (Some(username), Some(password)) => Ok(Self {
                username: composed(&username),
                password,
            }),
            _ => Err(Rejection::LoginIncomplete),
        }
    }

    /// Returns true for a missing or blank body (contract §4.1 rule 1).
    #[must_use]
    pub fn is_absent(body: &[u8]) -> bool {
        body.trim_ascii().is_empty()
    }
}

/// Removes a string member; the contract treats absent, null and empty alike.
fn text(members: &mut Map, name: &str) -> Result<Option<String>, Rejection> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if strict_json::is_whole(&text) => {
            Ok(Some(text).filter(|text| !text.is_empty()))
        }
        Some(_) => Err(Rejection::BodyMalformed),
    }
}

/// `data` of a successful login (contract §2.3). Every member is always present.
#[derive(Clone, PartialEq, Eq, Serialize, Default)]
pub struct AccessTokenInfo {
    /// The signed JWT.
    pub access_token: String,
    /// Null unless the server is configured to fill it.
    pub token_type: Option<String>,
    /// Null unless the server is configured to fill it.
    pub refresh_token: Option<String>,
    /// Lifetime in seconds; null unless the server is configured to fill it.
    pub expires_in: Option<u64>,
    /// Always null.
    pub scope: Option<String>,
    /// Always null.
    pub path: Option<String>,
    /// The user information block.
    pub info: UserInfo,
}

/// Never prints the token.
impl fmt::Debug for AccessTokenInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessTokenInfo")
            .field("access_token", &"[redacted]")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

/// `info` of the login response (contract §2.3). Every member is always present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub struct UserInfo {
    /// The tenant's id; null for the built-in user, like all members but two.
    pub tenant_id: Option<String>,
    /// Telephone number.
    pub telephone: Option<String>,
    /// User type, such as `member`.
    pub user_type: Option<String>,
    /// Address of the avatar picture.
    pub avatar: Option<String>,
    /// Name to show.
    pub nick_name: Option<String>,
    /// The value of the users file; the contract gives it no meaning.
    pub grade: Option<String>,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_account_is_composed_whatever_keyboard_types_it() {
        let body = "{\"username\":\"Mu\u{308}ller\",\"password\":\"b\"}";
        let request = LoginRequest::from_json(body.as_bytes()).unwrap();
        assert_eq!(request.username, "M\u{fc}ller");
    }

    #[test]
    fn debug_shows_neither_password_nor_token() {
        let request = LoginRequest::from_json(br#"{"username":"a","password":"hush"}"#).unwrap();
        assert!(!format!("{request:?}").contains("hush"));
        let info = AccessTokenInfo {
            access_token: "hush".into(),
            ..AccessTokenInfo::default()
        };
        assert!(!format!("{info:?}").contains("hush"));
    }
}
