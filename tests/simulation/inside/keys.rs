//! The keys of a server, or of a simulated store, as the laws compare them.

use std::collections::BTreeSet;

use postern_token::keys::signing_type::SigningType;
use zeroize::Zeroizing;

use super::state::State;
use crate::keys::records::Entry;
use crate::keys::ring::KeyRing;
use crate::keys::{StoredKeyPair, StoredKeys};
use crate::store::Key;
use crate::store::at_rest::KeyEncryption;

/// The keys at a moment, by their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    pub current: String,
    pub next: Option<String>,
    pub listed: BTreeSet<String>,
    pub revoked: BTreeSet<String>,
    /// Of two histories the later one counts.
    pub generation: (i64, u64),
}

impl From<&KeyRing> for Keys {
    fn from(ring: &KeyRing) -> Self {
        let listed = ring.verification_keys().map(|key| key.id().to_string());
        Self {
            current: ring.current().id().to_string(),
            next: ring.next().map(|next| next.pair.id().to_string()),
            listed: listed.collect(),
            generation: ring.generation(),
            revoked: ring.revoked().iter().map(ToString::to_string).collect(),
        }
    }
}

/// One value for each [`Entry`], in its order.
pub(super) type Values = [Option<Zeroizing<String>>; 3];

pub(super) fn values(state: &State) -> Values {
    Entry::ALL.map(|entry| {
        let Key { kind, id } = entry.key();
        let record = state.records.get(&(kind.name(), id));
        record.map(|record| record.value.clone())
    })
}

pub(super) fn opened(values: Values, encryption: &KeyEncryption) -> Option<Keys> {
    let mut values = Entry::ALL.into_iter().zip(values);
    let mut open = || {
        let (entry, value) = values.next()?;
        let value = value?;
        let opened = encryption.open(&entry.key(), &value);
        // A public key stays in clear.
        Some(opened.map_or(value, |opened| opened.text))
    };
    let (private, public, ring) = (open(), open(), open());
    let pair = private
        .zip(public)
        .map(|(private, public)| StoredKeyPair { private, public });
    let ring = KeyRing::parse(SigningType::Ecdsa, &StoredKeys { pair, ring });
    ring.ok().flatten().as_ref().map(Keys::from)
}
