//! The encryption of a store as a whole: the private key and the ring show its state, by which every other
//! record is written and read.

use zeroize::Zeroizing;

use super::Key;
use super::envelope_encryption::{EncryptionError, KeyEncryption, KeyEncryptionKey, MARK};

/// The encryption of a store as a whole, by which every server and command writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AtRest {
    InClear,
    /// Encrypted with the key of this id; values in clear still count.
    BeingEncrypted(String),
    /// Encrypted with the key of this id; a value in clear was planted.
    Encrypted(String),
}

impl AtRest {
    /// Returns the id of the key that encrypts.
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Self::InClear => None,
            Self::BeingEncrypted(id) | Self::Encrypted(id) => Some(id),
        }
    }
}

impl KeyEncryption {
    /// Returns the state of the store, or the state that a new store gets.
    pub(crate) fn at_rest(&self) -> AtRest {
        match (self.known_at_rest(), &self.current) {
            (Some(known), _) => known,
            (None, Some(key)) => AtRest::Encrypted(key.id().to_owned()),
            (None, None) => AtRest::InClear,
        }
    }

    /// Returns the state of the store, once it was read.
    pub(crate) fn known_at_rest(&self) -> Option<AtRest> {
        self.at_rest.lock().clone()
    }

    /// Takes over the state of the store; returns true if it differs from the known state.
    pub(crate) fn take_over(&self, at_rest: &AtRest) -> bool {
        let former = self.at_rest.lock().replace(at_rest.clone());
        former.as_ref() != Some(at_rest)
    }

    /// Returns the key by which the store is encrypted.
    pub(crate) fn key_of(
        &self,
        at_rest: &AtRest,
    ) -> Result<Option<&KeyEncryptionKey>, EncryptionError> {
        match at_rest.key() {
            Some(id) => Ok(Some(self.key(id)?)),
            None => Ok(None),
        }
    }

    /// Encrypts the value of a record, if the store is encrypted.
    pub(crate) fn seal_record(
        &self,
        key: &Key,
        text: &str,
    ) -> Result<Zeroizing<String>, EncryptionError> {
        match self.key_of(&self.at_rest())? {
            Some(under) => under.seal(key, text),
            None => Ok(Zeroizing::new(text.to_owned())),
        }
    }

    /// Decrypts the value of a record. A value in clear does not count in an encrypted store: anyone who can
    /// write to the store could have planted it.
    pub(crate) fn open_record(
        &self,
        key: &Key,
        value: &str,
    ) -> Result<Zeroizing<String>, EncryptionError> {
        let counts_in_clear = !self.required && !matches!(self.at_rest(), AtRest::Encrypted(_));
        if !value.starts_with(MARK) && !counts_in_clear {
            return Err(EncryptionError::Planted);
        }
        Ok(self.open(key, value)?.text)
    }

    /// Returns true if the store, as it was read last, needs a key that is not configured.
    pub(crate) fn lacks_key(&self) -> bool {
        match self.known_at_rest() {
            Some(at_rest) => self.key_of(&at_rest).is_err(),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::Kind;
    use super::super::envelope_encryption::tests::{key, with};
    use super::*;

    #[test]
    fn a_record_is_written_and_read_as_the_store_is() {
        let record = Key {
            kind: Kind::Session,
            id: "a".to_owned(),
        };
        let both = || KeyEncryption {
            others: vec![key(2)],
            ..with(1)
        };
        let (one, two) = (|| key(1).id().to_owned(), || key(2).id().to_owned());
        for (at_rest, under, accepts_clear) in [
            (None, Some(one()), false),
            (Some(AtRest::InClear), None, true),
            (Some(AtRest::BeingEncrypted(one())), Some(one()), true),
            (Some(AtRest::Encrypted(one())), Some(one()), false),
            (Some(AtRest::Encrypted(two())), Some(two()), false),
        ] {
            let keys = both();
            at_rest.iter().for_each(|at_rest| {
                keys.take_over(at_rest);
            });
            let written = keys.seal_record(&record, "text").unwrap();
            let opened = both().open(&record, &written).unwrap();
            assert_eq!(opened.under, under, "{at_rest:?}");
            assert_eq!(
                keys.open_record(&record, &written).unwrap().as_str(),
                "text"
            );
            let in_clear = keys.open_record(&record, "text");
            assert_eq!(in_clear.is_ok(), accepts_clear, "{at_rest:?}");
            let strict = KeyEncryption {
                required: true,
                ..keys
            };
            let in_clear = strict.open_record(&record, "text");
            assert_eq!(in_clear, Err(EncryptionError::Planted));
        }
        let without = KeyEncryption::default();
        without.take_over(&AtRest::Encrypted(one()));
        let error = without.seal_record(&record, "text").unwrap_err();
        assert!(error.to_string().contains(&one()), "{error}");
    }
}
