//! The settings of the registry, and its errors.

use runtime::process::exit::ExitError;

use crate::address::RegistryAddress;
use crate::args::{DEFAULT_GROUP, DEFAULT_SERVICE, RegistryArgs};
use crate::{HAS_CLIENT, environment};

/// The registry's address, our credentials there, and the name of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrySettings {
    pub(crate) address: RegistryAddress,
    pub(crate) namespace: String,
    pub(crate) group: String,
    pub(crate) service: String,
}

/// A failed request to the registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No response.
    #[error("the registry does not respond")]
    Timeout,
    /// A response with an error, or a broken connection.
    #[error("the registry: {0}")]
    Failed(String),
    /// A required login that failed.
    #[error("{0}")]
    Login(String),
    /// A program that was built without the feature `client`.
    #[error("this program was built without a client of the registry")]
    LeftOut,
}

impl RegistrySettings {
    /// Describes the auth server under its usual name, in the public namespace and the default
    /// group.
    #[must_use]
    pub fn new(address: RegistryAddress) -> Self {
        Self {
            address,
            namespace: String::new(),
            group: DEFAULT_GROUP.to_owned(),
            service: DEFAULT_SERVICE.to_owned(),
        }
    }

    /// Adds the settings of the command line. `flag` holds the address.
    ///
    /// # Errors
    /// [`ExitError::Config`], one line that names the flag and repeats no password.
    pub fn configured(self, args: &RegistryArgs, flag: &str) -> Result<Self, ExitError> {
        if !HAS_CLIENT {
            return Err(ExitError::Config(format!(
                "{flag}: {}",
                RegistryError::LeftOut
            )));
        }
        environment::check().map_err(|error| ExitError::Config(format!("{flag}: {error}")))?;
        let password = match &args.registry_password_file {
            None => None,
            Some(file) => Some(runtime::files::secret_file::read(file).map_err(|error| {
                ExitError::Config(format!("--registry-password-file: {error}"))
            })?),
        };
        let address = self.address.with_password(password);
        Ok(Self {
            address: address.map_err(|error| ExitError::Config(format!("{flag}: {error}")))?,
            namespace: args.registry_namespace.clone(),
            group: args.registry_group.clone(),
            service: args.registry_service.clone(),
        })
    }

    /// Returns the address of the registry.
    #[must_use]
    pub fn address(&self) -> &RegistryAddress {
        &self.address
    }

    /// Returns the auth server's name there.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }
}
