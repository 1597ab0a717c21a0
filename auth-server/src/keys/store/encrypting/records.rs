//! Sessions encrypted with the key-encryption key, each for its own id.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tracing::warn;

use crate::keys::store::StoreError;
use crate::keys::store::envelope_encryption::{EncryptionError, KeyEncryption, Slot};
use crate::keys::store::records::{NewSession, SessionId, SessionStore, StoredSession};

pub(in crate::keys::store) struct EncryptedSessions {
    store: Arc<dyn SessionStore>,
    encryption: Arc<KeyEncryption>,
    /// True once a record that is not authentic was logged.
    was_logged: AtomicBool,
}

impl fmt::Debug for EncryptedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl EncryptedSessions {
    pub(in crate::keys::store) fn new(
        store: Arc<dyn SessionStore>,
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
    fn open(&self, id: &SessionId, held: &str) -> Result<Option<String>, StoreError> {
        match self.encryption.open(Slot::Session, held) {
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
                return Err(StoreError::Unusable(format!("a stored session: {error}")));
            }
            Err(_) => {}
        }
        self.log_unauthentic();
        Ok(None)
    }

    fn log_unauthentic(&self) {
        if !self.was_logged.swap(true, Ordering::Relaxed) {
            warn!(
                "a stored session was not written with the key-encryption key, and counts for nothing"
            );
        }
    }
}

#[async_trait]
impl SessionStore for EncryptedSessions {
    async fn session(&self, id: &SessionId) -> Result<Option<StoredSession>, StoreError> {
        let Some(StoredSession { held, .. }) = self.store.session(id).await? else {
            return Ok(None);
        };
        let text = self.open(id, &held)?;
        Ok(text.map(|text| StoredSession { text, held }))
    }

    async fn swap_session(
        &self,
        id: &SessionId,
        expected: Option<&StoredSession>,
        new: Option<NewSession<'_>>,
    ) -> Result<bool, StoreError> {
        let Some(NewSession { text, ends }) = new else {
            return self.store.swap_session(id, expected, None).await;
        };
        let sealed = self.encryption.seal(Slot::Session, &id.to_string(), text);
        let sealed = sealed.map_err(|error| StoreError::Unusable(format!("a session: {error}")))?;
        let text = sealed.as_ref().map_or(text, |sealed| sealed.as_str());
        let new = Some(NewSession { text, ends });
        if self.store.swap_session(id, expected, new).await? {
            return Ok(true);
        }
        if expected.is_some() {
            return Ok(false);
        }
        // A record that counts as none gives way, so that a fixed name is not lost with a key.
        let held = self.store.session(id).await?;
        let counts = |held: &StoredSession| matches!(self.open(id, &held.held), Ok(Some(_)));
        if held.as_ref().is_some_and(counts) {
            return Ok(false);
        }
        self.store.swap_session(id, held.as_ref(), new).await
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use runtime::clock::unix_now;

    use super::*;
    use crate::keys::store::envelope_encryption::tests::{key, with};
    use crate::keys::store::file::records::FileSessions;
    use crate::keys::store::records::other_record;

    fn id(number: u8) -> SessionId {
        SessionId::from_start(&[number; SessionId::LENGTH]).unwrap()
    }

    fn new(text: &str) -> NewSession<'_> {
        let ends = unix_now() + 3600;
        NewSession { text, ends }
    }

    #[tokio::test]
    async fn a_session_counts_only_as_it_was_written_and_where() {
        let directory = tempfile::tempdir().unwrap();
        let files = Arc::new(FileSessions::new(directory.path()));
        let open =
            |encryption| EncryptedSessions::new(Arc::clone(&files) as _, Arc::new(encryption));
        let text = async |encryption, number| {
            let held = open(encryption).session(&id(number)).await;
            held.map(|held| held.map(|held| held.text))
        };
        let store = open(with(1));
        let begun = store.swap_session(&id(1), None, Some(new("ada"))).await;
        assert_eq!(begun, Ok(true));
        let raw = files.session(&id(1)).await.unwrap().unwrap().text;
        assert!(!raw.contains("ada"), "{raw}");
        // Copied to another session, and planted.
        for (number, planted) in [
            (2, raw.as_str()),
            (3, "ada"),
            (4, ""),
            (5, &raw[..raw.len() - 4]),
        ] {
            let id = id(number);
            let swapped = files.swap_session(&id, None, Some(new(planted))).await;
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
        let files = Arc::new(FileSessions::new(directory.path()));
        let open =
            |encryption| EncryptedSessions::new(Arc::clone(&files) as _, Arc::new(encryption));
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
            let begun = store.swap_session(&id(1), None, Some(new(&text))).await;
            assert_eq!(begun, Ok(true), "{number}");
            let held = other_record(&store, &id(1)).await.unwrap();
            assert_eq!(held.unwrap().text, text);
            let again = store.swap_session(&id(1), None, Some(new("again"))).await;
            assert_eq!(again, Ok(false), "{number}");
        }
        let store = open(with(1));
        let begun = store.swap_session(&id(2), None, Some(new("ada"))).await;
        assert_eq!(begun, Ok(true));
        let rotated = open(KeyEncryption {
            previous: Some(key(1)),
            ..with(2)
        });
        let over = rotated.swap_session(&id(2), None, Some(new("x"))).await;
        assert_eq!(over, Ok(false), "the previous key counts");
    }
}
