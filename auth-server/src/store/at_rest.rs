//! The encryption of a store as a whole: the private key and the ring show its state, by which every other
//! record is written and read, with the configured keys.

use parking_lot::Mutex;
use postern_process::logs::sanitize::LogText;
use zeroize::Zeroizing;

use super::Key;
use super::envelope_encryption::{EncryptionError, Envelope, KeyEncryptionKey, MARK, NO_KEY};

/// The word in place of the key that encrypts.
const CLEAR: &str = "clear";
/// The error of that word alone.
const CLEAR_ALONE: &str = "'clear' comes before a key that decrypts";

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

/// The configured key-encryption keys.
#[derive(Debug, Default)]
pub(crate) struct KeyEncryption {
    /// The key that encrypts a new store, or a store that is encrypted anew; `None` for plaintext.
    pub(crate) current: Option<KeyEncryptionKey>,
    /// The keys that decrypt values of other servers, or of earlier times.
    pub(crate) others: Vec<KeyEncryptionKey>,
    /// True if private values in plaintext are rejected.
    pub(crate) required: bool,
    /// The state of the store as it was read last.
    pub(crate) at_rest: Mutex<Option<AtRest>>,
}

pub(crate) struct Decrypted {
    pub(crate) text: Zeroizing<String>,
    /// The id of the key-encryption key; `None` for plaintext.
    pub(crate) under: Option<String>,
}

impl KeyEncryption {
    /// Parses keys with white space between them: the first encrypts, unless `clear` stands in its place.
    ///
    /// # Errors
    /// For a text that is no key, and for `clear` alone.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut words = text.split_whitespace().peekable();
        let in_clear = words.next_if_eq(&CLEAR).is_some();
        let mut keys = words
            .map(KeyEncryptionKey::parse)
            .collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() {
            return Err(if in_clear { CLEAR_ALONE } else { NO_KEY });
        }
        Ok(Self {
            current: if in_clear { None } else { Some(keys.remove(0)) },
            others: keys,
            ..Self::default()
        })
    }

    /// Returns all keys, the one that encrypts first.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &KeyEncryptionKey> {
        self.current.iter().chain(&self.others)
    }

    /// Decrypts the value of a record; returns plaintext as it is.
    pub(crate) fn open(&self, record: &Key, text: &str) -> Result<Decrypted, EncryptionError> {
        let Some(envelope) = Envelope::parse(text)? else {
            if self.required {
                return Err(EncryptionError::InClear);
            }
            return Ok(Decrypted {
                text: Zeroizing::new(text.to_owned()),
                under: None,
            });
        };
        let key = self.key(envelope.key)?;
        Ok(Decrypted {
            text: key.open(record, &envelope)?,
            under: Some(key.id().to_owned()),
        })
    }

    fn key(&self, id: &str) -> Result<&KeyEncryptionKey, EncryptionError> {
        if let Some(found) = self.keys().find(|key| key.id() == id) {
            return Ok(found);
        }
        // Name both sides: the operator compares the needed id with the configured ones.
        let ids: Vec<_> = self.keys().map(|key| key.id()).collect();
        Err(EncryptionError::NoKey {
            needed: LogText(id).to_string(),
            configured: match ids.as_slice() {
                [] => None,
                ids => Some(ids.join(", ")),
            },
        })
    }

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
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use super::super::Kind;
    use super::super::envelope_encryption::tests::key;
    use super::*;

    pub(crate) fn with(current: u8) -> KeyEncryption {
        KeyEncryption {
            current: Some(key(current)),
            ..KeyEncryption::default()
        }
    }

    fn record(id: &str) -> Key {
        Key {
            kind: Kind::Session,
            id: id.to_owned(),
        }
    }

    fn opened(keys: &KeyEncryption, id: &str, text: &str) -> Result<String, EncryptionError> {
        keys.open(&record(id), text)
            .map(|opened| opened.text.to_string())
    }

    #[test]
    fn the_first_key_encrypts_and_all_decrypt() {
        let (one, two) = (
            format!("01{}", "5a".repeat(31)),
            format!("02{}", "5a".repeat(31)),
        );
        for (text, current, others) in [
            (one.clone(), Some("1"), vec![]),
            (format!("{one}\n{two}\n"), Some("1"), vec!["2"]),
            (format!("clear {two} {one}"), None, vec!["2", "1"]),
        ] {
            let keys = KeyEncryption::parse(&text).unwrap();
            let name = |found: &KeyEncryptionKey| if found.id() == key(1).id() { "1" } else { "2" };
            assert_eq!(keys.current.as_ref().map(name), current);
            assert_eq!(keys.others.iter().map(name).collect::<Vec<_>>(), others);
        }
        for (text, error) in [
            ("", NO_KEY),
            ("clear", CLEAR_ALONE),
            (&format!("{one}\nclear"), NO_KEY),
        ] {
            assert_eq!(KeyEncryption::parse(text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn a_record_is_written_and_read_as_the_store_is() {
        let record = record("a");
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

    #[test]
    fn what_is_encrypted_opens_in_its_slot_and_no_two_are_alike() {
        let keys = with(1);
        let seal = || key(1).seal(&record("a"), "a key").unwrap();
        let (one, other) = (seal(), seal());
        assert_ne!(one, other);
        assert!(!one.contains("a key"));
        for sealed in [one, other] {
            let opened = keys.open(&record("a"), &sealed).unwrap();
            assert_eq!(opened.text.as_str(), "a key");
            assert_eq!(opened.under, Some(key(1).id().to_owned()));
        }
    }

    #[test]
    fn what_was_moved_renamed_or_changed_does_not_open() {
        let keys = with(1);
        let sealed = key(1).seal(&record("a"), "a key").unwrap();
        for (id, text) in [
            ("b", sealed.to_string()),
            ("a", sealed[..sealed.len() - 2].to_owned()),
            ("a", sealed.to_string() + "AA"),
            ("a", sealed.to_string() + "!"),
        ] {
            assert_eq!(opened(&keys, id, &text), Err(EncryptionError::Forged));
        }
        let other = Key {
            kind: Kind::Application,
            ..record("a")
        };
        assert!(keys.open(&other, &sealed).is_err());
        for text in [
            "postern-encrypted:",
            "postern-encrypted:2:a:b",
            "postern-encrypted:1:a",
            &format!("{}:x", *sealed),
        ] {
            assert_eq!(opened(&keys, "a", text), Err(EncryptionError::Unknown));
        }
    }

    #[test]
    fn the_other_keys_read_and_a_missing_one_is_named() {
        let sealed = key(1).seal(&record("a"), "{}").unwrap();
        let rotated = KeyEncryption {
            others: vec![key(1)],
            ..with(2)
        };
        let read = rotated.open(&record("a"), &sealed).unwrap();
        assert_eq!(
            (read.text.as_str(), read.under),
            ("{}", Some(key(1).id().to_owned()))
        );
        let line = opened(&with(2), "a", &sealed).unwrap_err().to_string();
        let (one, two) = (key(1).id().to_owned(), key(2).id().to_owned());
        assert_eq!(
            line,
            format!("encrypted with the key-encryption key {one}, and what is configured is {two}")
        );
        let none = opened(&KeyEncryption::default(), "a", &sealed);
        assert!(none.unwrap_err().to_string().contains("none is configured"));
    }
}
