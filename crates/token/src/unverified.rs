//! The readable parts of a token, which are not verified: used only to explain a token, or for a token that
//! the operator gives, and never to accept a client's.

pub mod detail;

use serde::{Deserialize, Serialize};

use crate::compact::object;
use crate::strict_json::Value;

/// Header and claims of a token; never the signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecodedToken {
    /// The first part.
    pub header: Value,
    /// The second part.
    pub claims: Value,
}

impl DecodedToken {
    /// Decodes `token`; `None` unless it has three parts of which the first two hold JSON objects.
    pub fn decode(token: &str) -> Option<Self> {
        let mut parts = token.split('.');
        let (header, claims, _signature) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        Some(Self {
            header: Value::Object(object(header).ok()?),
            claims: Value::Object(object(claims).ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_signature_is_not_kept_and_what_is_no_token_is_skipped() {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let token = format!(
            "{}.{}.c2VjcmV0",
            part(r#"{"alg":"x"}"#),
            part(r#"{"exp":1}"#)
        );
        let decoded = DecodedToken::decode(&token);
        let expected = DecodedToken {
            header: serde_json::from_value(json!({"alg": "x"})).unwrap(),
            claims: serde_json::from_value(json!({"exp": 1})).unwrap(),
        };
        assert_eq!(decoded, Some(expected));
        for token in [
            "",
            "a.b.c",
            "..",
            &token[..10],
            &format!("{token}.x"),
            &format!("{}.{}.x", part("[]"), part("{}")),
        ] {
            assert_eq!(DecodedToken::decode(token), None, "{token}");
        }
    }
}
