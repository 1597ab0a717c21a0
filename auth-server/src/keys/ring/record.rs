//! The ring as a store holds it, beside the contract's two values:
//! `{"current": {"kid", "since"}, "next": {"private", "public", "signsFrom"},
//! "retired": [{"public", "until"}], "revoked": ["kid"]}`, times in seconds since the epoch.
//!
//! Members that are not known are left out in silence: during an upgrade servers of two versions
//! share one store.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::KeysFault;
use crate::keys::StoredRing;

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RingRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<CurrentRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<NextRecord>,
    pub(super) retired: Vec<RetiredRecord>,
    pub(super) revoked: Vec<String>,
}

/// Named, because the pair may be replaced by who does not know the ring.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CurrentRecord {
    pub(super) kid: String,
    pub(super) since: i64,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NextRecord {
    pub(super) private: Zeroizing<String>,
    pub(super) public: Zeroizing<String>,
    pub(super) signs_from: i64,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RetiredRecord {
    pub(super) public: String,
    pub(super) until: i64,
}

impl RingRecord {
    /// No ring is one that says nothing.
    pub(super) fn parse(stored: Option<&StoredRing>) -> Result<Self, KeysFault> {
        let Some(StoredRing(text)) = stored else {
            return Ok(Self::default());
        };
        // The parser's own text may quote a key.
        serde_json::from_str(text).map_err(|error| KeysFault::NoRing {
            line: error.line(),
            column: error.column(),
        })
    }

    pub(super) fn to_stored(&self) -> Result<StoredRing, serde_json::Error> {
        serde_json::to_string(self)
            .map(Zeroizing::new)
            .map(StoredRing)
    }
}
