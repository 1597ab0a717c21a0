//! `[[rule]]` of the configuration file, and patterns with methods.

use std::collections::BTreeMap;

use postern_contract::settings::whole_patterns;
use serde::{Deserialize, Serialize, Serializer};

/// One `[[rule]]`, before its values are checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleTable {
    /// The name in metrics and explanations.
    pub(crate) name: Option<String>,
    pub(crate) methods: Option<Vec<String>>,
    pub(crate) paths: Vec<String>,
    /// The names of the issuers; the token is of one of them.
    pub(crate) issuer: Option<Vec<String>>,
    /// The token needs one of them.
    pub(crate) scope: Option<Vec<String>>,
    /// The token needs one value of each.
    pub(crate) claims: Option<BTreeMap<String, Vec<ClaimValue>>>,
    /// Those of the claims whose texts are compared by their words too.
    pub(crate) words: Option<Vec<String>>,
}

/// A value of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected a string, an integer, true or false")]
pub(crate) enum ClaimValue {
    Text(String),
    Integer(i64),
    Boolean(bool),
}

/// Serializes whole patterns.
pub(super) fn serialize_whole<S: Serializer>(
    pieces: &[String],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(whole_patterns(pieces))
}
