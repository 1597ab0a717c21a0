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
