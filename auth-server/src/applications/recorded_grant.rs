//! The grant of an application in its record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::grants::Grant;

/// A grant and the number of its changes, by which an older record (a failover, a restored backup)
/// is recognised: a scope that was taken away must not come back with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordedGrant {
    version: u64,
    #[serde(flatten)]
    grant: Grant,
    /// Members of a newer version, kept until the grant is changed.
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

impl RecordedGrant {
    /// Replaces `former`, if there is one.
    pub(super) fn replacing(former: Option<&Self>, grant: Grant) -> Self {
        Self {
            version: former.map_or(0, |former| former.version).saturating_add(1),
            grant,
            unknown: BTreeMap::new(),
        }
    }

    pub(super) const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Returns the later of the stored grant and the one in memory; the stored one of two alike.
    pub(super) fn latest(stored: Option<&Self>, memory: Option<&Self>) -> Option<Self> {
        let version = |grant: Option<&Self>| grant.map_or(0, |grant| grant.version);
        let latest = if version(memory) > version(stored) {
            memory
        } else {
            stored
        };
        latest.cloned()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn grant(scope: &str) -> Grant {
        Grant {
            scope: scope.parse().unwrap(),
            ..Grant::default()
        }
    }

    #[test]
    fn the_later_change_counts_wherever_it_is() {
        let first = RecordedGrant::replacing(None, grant("a b"));
        let second = RecordedGrant::replacing(Some(&first), grant("a"));
        for (stored, memory, expected) in [
            (None, None, None),
            (Some(&first), None, Some(&first)),
            (None, Some(&first), Some(&first)),
            (Some(&first), Some(&second), Some(&second)),
            (Some(&second), Some(&first), Some(&second)),
        ] {
            let latest = RecordedGrant::latest(stored, memory);
            assert_eq!(latest.as_ref(), expected);
        }
        let other = RecordedGrant::replacing(None, grant("c"));
        let latest = RecordedGrant::latest(Some(&other), Some(&first));
        assert_eq!(latest, Some(other), "the store decides between equals");
    }

    #[test]
    fn members_of_a_newer_version_stay_until_the_grant_changes() {
        let json = r#"{"version":3,"scope":"a","resources":["x"]}"#;
        let newer: RecordedGrant = serde_json::from_str(json).unwrap();
        let written = serde_json::to_value(&newer).unwrap();
        assert_eq!(written, serde_json::from_str::<Value>(json).unwrap());
        assert_eq!(newer.grant(), &grant("a"));
        let changed = RecordedGrant::replacing(Some(&newer), grant("b"));
        let json = serde_json::to_string(&changed).unwrap();
        assert_eq!(json, r#"{"version":4,"scope":"b"}"#);
    }
}
