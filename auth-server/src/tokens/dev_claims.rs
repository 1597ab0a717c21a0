//! Tokens of `auth-server dev`: any claims, completed to those of the contract.

use serde_json::{Map, Value, json};

use super::issuer::{IssuedTimes, TokenIssuer};
use crate::accounts::users::builtin::{ACCOUNT, ID};

/// The claims of a token.
pub(crate) type ClaimSet = Map<String, Value>;

impl TokenIssuer {
    /// Completes the claims of a token. Each claim that is given stays as it is, and `null` leaves one
    /// out.
    pub(crate) fn completed(
        &self,
        given: ClaimSet,
        times: IssuedTimes,
        token_id: String,
    ) -> ClaimSet {
        let value = |names: [&str; 2], default: &str| {
            names
                .into_iter()
                .find_map(|name| given.get(name))
                .cloned()
                .unwrap_or_else(|| default.into())
        };
        let (id, account) = (
            value(["userId", "sub"], ID),
            value(["username", "preferred_username"], ACCOUNT),
        );
        // A token that has expired was issued before it did.
        let issued_at = times.issued_at.min(times.expires);
        let audience = Some(&self.audience).filter(|audience| !audience.is_empty());
        let mut claims = ClaimSet::from_iter(
            [
                ("iss", json!(self.issuer)),
                ("aud", json!(audience)),
                ("sub", id.clone()),
                ("userId", id),
                ("nickName", account.clone()),
                ("username", account),
                ("iat", json!(issued_at)),
                ("nbf", json!(issued_at)),
                ("exp", json!(times.expires)),
                ("jti", json!(token_id)),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        claims.extend(given);
        claims.retain(|_, value| !value.is_null());
        claims
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn completed(given: Value, lifetime: i64) -> Value {
        let issuer = TokenIssuer {
            issuer: "auth".into(),
            audience: Vec::new(),
            lifetime: 60,
        };
        let given = serde_json::from_value(given).unwrap();
        let times = IssuedTimes::new(1_000, lifetime);
        Value::Object(issuer.completed(given, times, "id".into()))
    }

    #[test]
    fn what_is_not_given_is_the_built_in_user_s() {
        assert_eq!(
            completed(json!({"roles": ["admin"]}), 60),
            json!({
                "iss": "auth", "sub": "1", "userId": "1", "username": "admin", "nickName": "admin",
                "iat": 1000, "nbf": 1000, "exp": 1060, "jti": "id", "roles": ["admin"]
            })
        );
    }

    #[test]
    fn a_given_claim_stays_and_null_leaves_one_out() {
        let given = json!({"sub": "7", "aud": ["a"], "exp": null, "nickName": null});
        assert_eq!(
            completed(given, 60),
            json!({
                "iss": "auth", "aud": ["a"], "sub": "7", "userId": "7", "username": "admin",
                "iat": 1000, "nbf": 1000, "jti": "id"
            })
        );
    }

    #[test]
    fn a_token_that_has_expired_was_valid_before() {
        let expired = completed(json!({}), -60);
        assert_eq!(
            [&expired["nbf"], &expired["exp"]],
            [&json!(940), &json!(940)]
        );
    }
}
