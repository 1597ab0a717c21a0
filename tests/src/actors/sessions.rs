//! Sessions of users, and tokens of applications, at the token endpoint of an auth server.

use serde_json::Value;

use crate::actors::auth_server::AuthServer;
use crate::actors::token_forge::jti_of;
use crate::wire::message::Message;

/// The token endpoint, relative to the context path.
pub const TOKEN: &str = "/oauth/token";
/// The password of the users in most tests.
pub const PASSWORD: &str = "enchantress";

/// An access token with its refresh token.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// The access token.
    pub access: String,
    /// The refresh token.
    pub refresh: String,
}

impl Tokens {
    /// Takes both from a response.
    ///
    /// # Panics
    /// When one is missing.
    pub fn of(response: &Value) -> Self {
        let text = |name: &str| match response[name].as_str() {
            Some(text) => text.to_owned(),
            None => panic!("no {name}: {response}"),
        };
        Self {
            access: text("access_token"),
            refresh: text("refresh_token"),
        }
    }

    /// Returns the id of the access token.
    pub fn jti(&self) -> String {
        jti_of(&self.access)
    }
}

impl AuthServer {
    /// Begins a session of a user with the usual password; a server without a users file accepts
    /// any user.
    pub fn session_of(&self, account: &str) -> Tokens {
        Tokens::of(&self.login_as(account, PASSWORD).json()["data"])
    }

    /// Uses a refresh token.
    pub fn refresh(&self, token: &str) -> Message {
        let form = format!("grant_type=refresh_token&refresh_token={token}");
        self.anonymous().post_form(TOKEN, &form)
    }

    /// Renews a session.
    pub fn refreshed(&self, tokens: &Tokens) -> Tokens {
        Tokens::of(&self.refresh(&tokens.refresh).json())
    }

    /// Requests a token for an application; `more` stands behind its credentials.
    pub fn grant(&self, id: &str, secret: &str, more: &str) -> Message {
        let credentials = format!("client_id={id}&client_secret={secret}");
        let form = format!("grant_type=client_credentials&{credentials}{more}");
        self.anonymous().post_form(TOKEN, &form)
    }
}

impl Message {
    /// Returns the access token in the response to a login or of the token endpoint.
    ///
    /// # Panics
    /// When the response has no token.
    pub fn access_token(&self) -> String {
        let body = self.json();
        let members = [&body["data"], &body];
        let mut tokens = members
            .into_iter()
            .filter_map(|it| it["access_token"].as_str());
        let token = tokens.next().map(str::to_owned);
        token.unwrap_or_else(|| panic!("no token: {}", self.text()))
    }
}
