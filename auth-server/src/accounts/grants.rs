//! Grants of users and applications beyond their identity: scope, audience and further claims.
//!
//! Everything is validated where it is read, so that a token never carries what a verifier could
//! take for another claim.

mod claims;
mod scope;
mod word;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use self::claims::{FurtherClaims, named_claim};
pub(crate) use self::scope::Scope;
pub(crate) use self::word::Word;

/// A recipient of tokens (`aud`). Names of services are short; longer names would only fill tokens.
pub(crate) type Audience = Word<256>;

/// Scope, audience and further claims of one user or application.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    #[serde(default, skip_serializing_if = "Scope::is_empty")]
    pub(crate) scope: Scope,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) audience: Vec<Audience>,
    #[serde(default, skip_serializing_if = "FurtherClaims::is_empty")]
    pub(crate) claims: FurtherClaims,
    /// Members of a newer version, kept until the grant is replaced.
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_absent_is_left_out() {
        let json = r#"{"scope":"a b","audience":["orders"],"claims":{"tenant":"t1"}}"#;
        let grant: Grant = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&grant).unwrap(), json);
        assert_eq!(serde_json::to_string(&Grant::default()).unwrap(), "{}");
        for json in [
            r#"{"scope":""}"#,
            r#"{"audience":["a b"]}"#,
            r#"{"claims":{"iss":"me"}}"#,
        ] {
            assert!(serde_json::from_str::<Grant>(json).is_err(), "{json}");
        }
    }
}
