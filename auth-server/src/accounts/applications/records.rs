//! The document of the applications in the store.

use super::Applications;
use crate::store::open_store::{Held, OpenStore};
use crate::store::{Key, Kind, StoreError, Version};

impl OpenStore {
    pub(crate) async fn read_applications(&self) -> Result<Held<Applications>, StoreError> {
        self.read(&key()).await
    }

    /// Writes the document in place of the version `expected`; `None` for the first document. Returns `false`
    /// and changes nothing if the store has another version.
    pub(crate) async fn write_applications(
        &self,
        expected: Option<Version>,
        document: &Applications,
    ) -> Result<bool, StoreError> {
        self.write(key(), expected, document, None).await
    }
}

impl Held<Applications> {
    /// Returns the document, empty before the first change.
    pub(crate) fn document(&self) -> Result<Applications, StoreError> {
        self.record.clone().map(Option::unwrap_or_default)
    }
}

pub(crate) fn key() -> Key {
    Key {
        kind: Kind::Application,
        id: "all".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::Arc;

    use super::*;
    use crate::accounts::applications::secret_hash::SecretHashes;
    use crate::store::at_rest::AtRest;
    use crate::store::conformance::unsteady::Unsteady;
    use crate::store::envelope_encryption::KeyEncryption;
    use crate::store::envelope_encryption::tests::{key as encryption_key, with};

    fn registered() -> Applications {
        let id = "orders".parse().unwrap();
        Applications::default().changed(id, SecretHashes::new("first"), 1)
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_neither_absent_nor_empty() {
        let store = Unsteady::new();
        let opened = OpenStore::unencrypted(Arc::new(Arc::clone(&store)));
        for text in ["1", "{", r#"{"applications":{"a b":{}}}"#] {
            store.plant(key(), Some(text)).await;
            let held = opened.read_applications().await.unwrap();
            assert!(held.record.is_err() && held.version.is_some(), "{text}");
        }
    }

    #[tokio::test]
    async fn it_is_replaced_only_as_it_was_read() {
        let opened = OpenStore::unencrypted(Arc::new(Unsteady::new()));
        let before = opened.read_applications().await.unwrap();
        assert_eq!(before.document(), Ok(Applications::default()));
        for is_first in [true, false] {
            let written = opened
                .write_applications(before.version.clone(), &registered())
                .await;
            assert_eq!(written, Ok(is_first));
        }
        let held = opened.read_applications().await.unwrap();
        assert_eq!(held.document(), Ok(registered()));
    }

    #[tokio::test]
    async fn it_counts_as_the_store_is() {
        let store = Unsteady::new();
        let opened = |at_rest: &AtRest| {
            let encryption: KeyEncryption = with(1);
            encryption.take_over(at_rest);
            OpenStore::unencrypted(Arc::new(Arc::clone(&store))).with(encryption)
        };
        let id = encryption_key(1).id().to_owned();
        let in_clear = opened(&AtRest::InClear);
        let (being, encrypted) = (
            opened(&AtRest::BeingEncrypted(id.clone())),
            opened(&AtRest::Encrypted(id)),
        );
        let nothing = in_clear.read_applications().await.unwrap();
        let written = in_clear
            .write_applications(nothing.version, &registered())
            .await;
        assert_eq!(written, Ok(true));
        let planted = encrypted.read_applications().await.unwrap();
        assert!(planted.record.is_err());
        let held = being.read_applications().await.unwrap();
        assert_eq!(held.document(), Ok(registered()));
        let written = being.write_applications(held.version, &registered()).await;
        assert_eq!(written, Ok(true));
        let held = encrypted.read_applications().await.unwrap();
        assert_eq!(held.document(), Ok(registered()));
    }
}
