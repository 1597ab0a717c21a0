//! `[[rule]]` of the configuration file, and patterns with methods.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::{Deserialize, Serialize, Serializer};

/// One `[[rule]]`, before its values are checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleTable {
    /// The name in metrics and explanations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) methods: Option<Vec<String>>,
    pub(crate) paths: Vec<String>,
    /// The names of the issuers; the token is of one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) issuer: Option<Vec<String>>,
    /// The token needs one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<Vec<String>>,
    /// The token needs one value of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claims: Option<BTreeMap<String, Vec<ClaimValue>>>,
}

/// A value of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a string, an integer, true or false")]
pub(crate) enum ClaimValue {
    Text(String),
    Integer(i64),
    Boolean(bool),
}

/// The fate of a request with a valid token that no rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DefaultRule {
    /// The token is enough.
    #[default]
    Token,
    /// The request is rejected.
    Deny,
}

/// Joins methods to the pattern that follows them: a flag's value is split at every comma, and
/// `GET,HEAD /a` is one pattern.
pub(crate) fn whole_patterns(pieces: &[String]) -> Vec<String> {
    let mut patterns = Vec::new();
    let mut methods = String::new();
    for piece in pieces {
        methods.push_str(piece);
        let are_methods = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
        if !piece.is_empty() && piece.bytes().all(are_methods) {
            methods.push(',');
        } else {
            patterns.push(std::mem::take(&mut methods));
        }
    }
    if !methods.is_empty() {
        patterns.push(methods);
    }
    patterns
}

/// Serializes whole patterns.
pub(super) fn serialize_whole<S: Serializer>(
    pieces: &[String],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(whole_patterns(pieces))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_belong_to_the_pattern_behind_them() {
        for (given, expected) in [
            ("/a/**,/b", &["/a/**", "/b"][..]),
            ("GET,HEAD /a,/b", &["GET,HEAD /a", "/b"]),
            ("/b,M-SEARCH /a", &["/b", "M-SEARCH /a"]),
            ("GET,/a", &["GET,/a"]),
            ("/a,GET", &["/a", "GET,"]),
            ("", &[""]),
        ] {
            let pieces: Vec<String> = given.split(',').map(ToOwned::to_owned).collect();
            assert_eq!(whole_patterns(&pieces), expected, "{given}");
        }
    }
}
