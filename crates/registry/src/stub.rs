//! The stand-in for the client in a program that was built without it.

use crate::instance::Instance;
use crate::settings::{RegistryError, RegistrySettings};

/// A client that cannot exist.
#[derive(Debug)]
pub enum RegistryClient {}

impl RegistryClient {
    /// Fails.
    ///
    /// # Errors
    /// [`RegistryError::LeftOut`].
    pub async fn start(_: &RegistrySettings) -> Result<Self, RegistryError> {
        Err(RegistryError::LeftOut)
    }

    /// # Errors
    /// Never called.
    pub async fn register(&self, _: &Instance) -> Result<(), RegistryError> {
        match *self {}
    }

    /// # Errors
    /// Never called.
    pub async fn deregister(&self, _: &Instance) -> Result<(), RegistryError> {
        match *self {}
    }

    /// # Errors
    /// Never called.
    pub async fn instances(&self) -> Result<Vec<Instance>, RegistryError> {
        match *self {}
    }

    /// Never called.
    pub async fn subscribe(&self, _: impl Fn(Vec<Instance>) + Send + Sync + 'static) {
        match *self {}
    }
}
