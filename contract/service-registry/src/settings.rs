//! What is configured about the registry, and what can go wrong there.

use runtime::exit::Failure;

use crate::address::RegistryAddress;
use crate::args::{DEFAULT_GROUP, DEFAULT_SERVICE, RegistryArgs};
use crate::{HAS_CLIENT, environment};

/// Where the registry is, who we are there, and which service this is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrySettings {
    pub(crate) address: RegistryAddress,
    pub(crate) namespace: String,
    pub(crate) group: String,
    pub(crate) service: String,
}

/// Why the registry did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// It is away, or does not answer.
    #[error("the registry does not answer")]
    Timeout,
    /// It answered, or the connection broke.
    #[error("the registry: {0}")]
    Failed(String),
    /// It asks for a login, and does not accept ours.
    #[error("{0}")]
    Login(String),
    /// This program was built without the feature `client`.
    #[error("this program was built without a client of the registry")]
    LeftOut,
}

impl RegistrySettings {
    /// The auth server under its usual name, in the public namespace and the default group.
    #[must_use]
    pub fn new(address: RegistryAddress) -> Self {
        Self {
            address,
            namespace: String::new(),
            group: DEFAULT_GROUP.to_owned(),
            service: DEFAULT_SERVICE.to_owned(),
        }
    }

    /// With what the command line says. `flag` is the one that holds the address.
    ///
    /// # Errors
    /// [`Failure::Config`], one line that names the flag; it repeats no password.
    pub fn configured(self, args: &RegistryArgs, flag: &str) -> Result<Self, Failure> {
        if !HAS_CLIENT {
            return Err(Failure::Config(format!(
                "{flag}: {}",
                RegistryError::LeftOut
            )));
        }
        environment::check().map_err(|error| Failure::Config(format!("{flag}: {error}")))?;
        let password =
            match &args.registry_password_file {
                None => None,
                Some(file) => Some(runtime::secret_file::read(file).map_err(|error| {
                    Failure::Config(format!("--registry-password-file: {error}"))
                })?),
            };
        let address = self.address.with_password(password);
        Ok(Self {
            address: address.map_err(|error| Failure::Config(format!("{flag}: {error}")))?,
            namespace: args.registry_namespace.clone(),
            group: args.registry_group.clone(),
            service: args.registry_service.clone(),
        })
    }

    /// Where the registry is.
    #[must_use]
    pub fn address(&self) -> &RegistryAddress {
        &self.address
    }

    /// The auth server's name there.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }
}
