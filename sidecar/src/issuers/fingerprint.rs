//! The identity of a key set, by which a change of keys is noticed and logged.

use std::fmt;

use postern_token::keys::{Algorithm, KeyId, KeySet};

/// The identity of a key set: its keys with their names and algorithms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeySetFingerprint {
    /// Name and thumbprint, by which they are sorted, algorithm, which the thumbprint does not cover
    /// (RFC 7638 §3.2), and whether `kid` selects the key.
    keys: Vec<(KeyId, KeyId, Algorithm, bool)>,
}

impl KeySetFingerprint {
    pub(crate) fn new(keys: &KeySet) -> Self {
        let mut names = Vec::new();
        for key in keys.keys() {
            let (name, thumbprint) = (key.id().clone(), key.thumbprint().clone());
            names.push((name, thumbprint, key.algorithm(), key.is_named()));
        }
        names.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        Self { keys: names }
    }
}

/// Renders the names for the log.
impl fmt::Display for KeySetFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, ..)) in self.keys.iter().enumerate() {
            let separator = if position == 0 { "" } else { " " };
            write!(f, "{separator}{name}")?;
        }
        Ok(())
    }
}
