//! Makes claims and signs them; nothing else in the program signs.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use contract::token::claims::Claims;
use jsonwebtoken::Header;
use jsonwebtoken::crypto::JwtSigner;
use jsonwebtoken::signature::Signer;
use serde::Serialize;

use crate::keys::pair::SigningKeyPair;
use crate::users::User;

/// Settings that all tokens of this server share.
#[derive(Debug, Clone)]
pub(crate) struct TokenIssuer {
    /// `iss`.
    pub(crate) issuer: String,
    /// `aud`, omitted if empty.
    pub(crate) audience: Vec<String>,
    /// Seconds from `iat` to `exp`.
    pub(crate) lifetime: u32,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SigningError {
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("cannot be signed: {0}")]
    Signature(#[from] jsonwebtoken::signature::Error),
}

impl TokenIssuer {
    /// Signs a JWT for `user` (contract §2.4), valid from `now`; `token_id` is its `jti`.
    pub(crate) fn issue(
        &self,
        pair: &SigningKeyPair,
        user: &User,
        now: i64,
        token_id: String,
    ) -> Result<String, SigningError> {
        let signing_key = pair.signing_key();
        let mut header = Header::new(signing_key.algorithm());
        header.kid = Some(pair.id().as_str().to_owned());
        let claims = self.claims(user, now, token_id);

        let mut token = format!("{}.{}", part(&header)?, part(&claims)?);
        let signature = signing_key.try_sign(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    fn claims(&self, user: &User, now: i64, token_id: String) -> Claims {
        Claims {
            issuer: Some(self.issuer.clone()),
            subject: Some(user.id.clone()),
            audience: self.audience.clone(),
            issued_at: Some(now),
            not_before: Some(now),
            expires_at: Some(now.saturating_add(i64::from(self.lifetime))),
            token_id: Some(token_id),
            client_id: None,
            username: user.account.clone(),
            nick_name: Some(user.nick_name.clone()),
            user_id: user.id.clone(),
            extra_info: user.extra_info.clone(),
            mapped_user: None,
            extra: Vec::new(),
        }
    }
}

/// Encodes one of the first two parts of a compact JWS (RFC 7515 §3.1).
fn part(value: &impl Serialize) -> Result<String, serde_json::Error> {
    serde_json::to_vec(value).map(|json| URL_SAFE_NO_PAD.encode(json))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use contract::keys::signing_type::SigningType;
    use serde_json::{Value, json};

    use super::*;
    use crate::keys::pair::tests::pair;
    use crate::users::builtin::tests::builtin_user;

    const NOW: i64 = 1_700_000_000;

    fn issue(pair: &SigningKeyPair) -> String {
        issue_for(&[], pair)
    }

    fn issue_for(audience: &[&str], pair: &SigningKeyPair) -> String {
        let issuer = TokenIssuer {
            issuer: "auth".into(),
            audience: audience.iter().map(ToString::to_string).collect(),
            lifetime: 18_000,
        };
        issuer
            .issue(pair, &builtin_user(), NOW, "id".into())
            .unwrap()
    }

    fn decoded(token: &str, index: usize) -> Value {
        let part = token.split('.').nth(index).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    }

    #[test]
    fn contract_2_4_the_payload_says_who_the_user_is() {
        assert_eq!(
            decoded(&issue(&pair(SigningType::Ecdsa)), 1),
            json!({
                "iss": "auth", "sub": "1", "iat": NOW, "nbf": NOW, "exp": NOW + 18_000, "jti": "id",
                "username": "admin", "nickName": "Administrator", "userId": "1",
                "extraInfo": {"userType": "member"}
            })
        );
    }

    #[test]
    fn the_audience_stands_in_the_token_where_there_is_one() {
        let pair = pair(SigningType::Ecdsa);
        let aud = |audience: &[&str]| decoded(&issue_for(audience, &pair), 1)["aud"].clone();
        assert_eq!(aud(&["orders"]), json!(["orders"]));
        assert_eq!(aud(&["orders", "stock"]), json!(["orders", "stock"]));
        assert_eq!(aud(&[]), Value::Null);
    }

    #[test]
    fn contract_2_4_the_header_names_the_type_s_algorithm_and_the_key() {
        for (signing_type, algorithm) in [
            (SigningType::Rsa, "RS256"),
            (SigningType::Hmac, "HS256"),
            (SigningType::Ecdsa, "ES256"),
        ] {
            let pair = pair(signing_type);
            assert_eq!(
                decoded(&issue(&pair), 0),
                json!({"typ": "JWT", "alg": algorithm, "kid": pair.id().as_str()})
            );
        }
    }

    #[test]
    fn a_token_of_each_type_verifies_with_the_served_string_only() {
        use jsonwebtoken::DecodingKey;
        use jsonwebtoken::crypto::verify;

        for signing_type in SigningType::ALL {
            let (mine, other) = (pair(signing_type), pair(signing_type));
            let token = issue(&mine);
            let (message, signature) = token.rsplit_once('.').unwrap();
            let verifies = |pair: &SigningKeyPair| {
                let text = pair.public_key_string().as_bytes();
                let key = match signing_type {
                    SigningType::Rsa => DecodingKey::from_rsa_pem(text).unwrap(),
                    SigningType::Ecdsa => DecodingKey::from_ec_pem(text).unwrap(),
                    SigningType::Hmac => DecodingKey::from_secret(text),
                };
                verify(
                    signature,
                    message.as_bytes(),
                    &key,
                    signing_type.algorithm(),
                )
                .unwrap()
            };
            assert!(verifies(&mine), "{signing_type}");
            assert!(!verifies(&other), "{signing_type}");
        }
    }
}
