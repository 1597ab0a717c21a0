//! Records encrypted with the key-encryption key, each for its own id.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tracing::warn;

use crate::keys::store::StoreError;
use crate::keys::store::records::{NewRecord, RecordId, RecordStore, StoredRecord};
use crate::store::envelope_encryption::{EncryptionError, KeyEncryption, Slot};

pub(in crate::keys::store) struct EncryptedRecords {
    store: Arc<dyn RecordStore>,
    encryption: Arc<KeyEncryption>,
    /// True once a record that is not authentic was logged.
    was_logged: AtomicBool,
}

impl fmt::Debug for EncryptedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl EncryptedRecords {
    pub(in crate::keys::store) fn new(
        store: Arc<dyn RecordStore>,
        encryption: Arc<KeyEncryption>,
    ) -> Self {
        Self {
            store,
            encryption,
            was_logged: AtomicBool::new(false),
        }
    }

    /// Decrypts a record. Unlike keys, records in clear do not count once there is a key: a user
    /// whose session is lost logs in again.
    fn open(&self, id: &RecordId, held: &str) -> Result<Option<String>, StoreError> {
        match self.encryption.open(Slot::Record, held) {
            Ok(opened) => {
                let is_authentic = match opened.kid {
                    Some(bound_to) => bound_to == id.to_string(),
                    None => self.encryption.current.is_none(),
                };
                if is_authentic {
                    return Ok(Some(opened.text.to_string()));
                }
            }
            Err(
                error @ EncryptionError::NoKey {
                    configured: None, ..
                },
            ) => {
                return Err(StoreError::Unusable(format!("a stored record: {error}")));
            }
            Err(_) => {}
        }
        self.log_unauthentic();
        Ok(None)
    }

    fn log_unauthentic(&self) {
        if !self.was_logged.swap(true, Ordering::Relaxed) {
            warn!(
                "a stored record was not written with the key-encryption key, and counts for nothing"
            );
        }
    }
}

#[async_trait]
impl RecordStore for EncryptedRecords {
    async fn record(&self, id: &RecordId) -> Result<Option<StoredRecord>, StoreError> {
        let Some(StoredRecord { held, .. }) = self.store.record(id).await? else {
            return Ok(None);
        };
        let text = self.open(id, &held)?;
        Ok(text.map(|text| StoredRecord { text, held }))
    }

    async fn swap_record(
        &self,
        id: &RecordId,
        expected: Option<&StoredRecord>,
        new: Option<NewRecord<'_>>,
    ) -> Result<bool, StoreError> {
        let Some(NewRecord { text, ends }) = new else {
            return self.store.swap_record(id, expected, None).await;
        };
        let sealed = self.encryption.seal(Slot::Record, &id.to_string(), text);
        let sealed = sealed.map_err(|error| StoreError::Unusable(format!("a record: {error}")))?;
        let text = sealed.as_ref().map_or(text, |sealed| sealed.as_str());
        let new = Some(NewRecord { text, ends });
        if self.store.swap_record(id, expected, new).await? {
            return Ok(true);
        }
        if expected.is_some() {
            return Ok(false);
        }
        // A record that counts as none gives way, so that a fixed name is not lost with a key.
        let held = self.store.record(id).await?;
        let counts = |held: &StoredRecord| matches!(self.open(id, &held.held), Ok(Some(_)));
        if held.as_ref().is_some_and(counts) {
            return Ok(false);
        }
        self.store.swap_record(id, held.as_ref(), new).await
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use runtime::process::clock::unix_now;

    use super::*;
    use crate::keys::store::file::records::FileRecords;
    use crate::keys::store::records::other_record;
    use crate::store::envelope_encryption::tests::{key, with};

    fn id(number: u8) -> RecordId {
        RecordId::from_start(&[number; RecordId::LENGTH]).unwrap()
    }

    fn new(text: &str) -> NewRecord<'_> {
        let ends = unix_now() + 3600;
        NewRecord { text, ends }
    }

    #[tokio::test]
    async fn a_record_counts_only_as_it_was_written_and_where() {
        let directory = tempfile::tempdir().unwrap();
        let files = Arc::new(FileRecords::new(directory.path()));
        let open =
            |encryption| EncryptedRecords::new(Arc::clone(&files) as _, Arc::new(encryption));
        let text = async |encryption, number| {
            let held = open(encryption).record(&id(number)).await;
            held.map(|held| held.map(|held| held.text))
        };
        let store = open(with(1));
        let begun = store.swap_record(&id(1), None, Some(new("ada"))).await;
        assert_eq!(begun, Ok(true));
        let raw = files.record(&id(1)).await.unwrap().unwrap().text;
        assert!(!raw.contains("ada"), "{raw}");
        // Copied to another record, and planted.
        for (number, planted) in [
            (2, raw.as_str()),
            (3, "ada"),
            (4, ""),
            (5, &raw[..raw.len() - 4]),
        ] {
            let id = id(number);
            let swapped = files.swap_record(&id, None, Some(new(planted))).await;
            assert_eq!(swapped, Ok(true));
            assert_eq!(text(with(1), number).await, Ok(None), "{planted}");
        }
        assert_eq!(text(with(1), 1).await, Ok(Some("ada".to_owned())));
        assert_eq!(text(with(2), 1).await, Ok(None));
        let rotated = KeyEncryption {
            previous: Some(key(1)),
            ..with(2)
        };
        assert_eq!(text(rotated, 1).await, Ok(Some("ada".to_owned())));
        // A server that lacks the key of the others ends nothing.
        assert!(text(KeyEncryption::default(), 1).await.is_err());
        assert_eq!(
            text(KeyEncryption::default(), 3).await,
            Ok(Some("ada".to_owned()))
        );
    }

    #[tokio::test]
    async fn a_record_that_does_not_count_gives_way_to_a_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let files = Arc::new(FileRecords::new(directory.path()));
        let open =
            |encryption| EncryptedRecords::new(Arc::clone(&files) as _, Arc::new(encryption));
        // In clear, then under a key that is introduced, replaced and dropped.
        let in_turn = [
            KeyEncryption::default(),
            with(1),
            with(2),
            KeyEncryption::default(),
        ];
        for (number, encryption) in in_turn.into_iter().enumerate() {
            let (store, text) = (open(encryption), number.to_string());
            assert_eq!(other_record(&store, &id(1)).await, Ok(None), "{number}");
            let begun = store.swap_record(&id(1), None, Some(new(&text))).await;
            assert_eq!(begun, Ok(true), "{number}");
            let held = other_record(&store, &id(1)).await.unwrap();
            assert_eq!(held.unwrap().text, text);
            let again = store.swap_record(&id(1), None, Some(new("again"))).await;
            assert_eq!(again, Ok(false), "{number}");
        }
        let store = open(with(1));
        let begun = store.swap_record(&id(2), None, Some(new("ada"))).await;
        assert_eq!(begun, Ok(true));
        let rotated = open(KeyEncryption {
            previous: Some(key(1)),
            ..with(2)
        });
        let over = rotated.swap_record(&id(2), None, Some(new("x"))).await;
        assert_eq!(over, Ok(false), "the previous key counts");
    }
}
