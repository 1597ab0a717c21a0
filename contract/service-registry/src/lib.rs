//! The service registry (Nacos, contract §1 and §4.3) as both programs see it: where it is, how one
//! registers there, and which instances of a service it lists.
//!
//! Not here: who registers when (`auth-server`) and which instance is asked (`sidecar`). The crate
//! `nacos-sdk` is known to one file, `client`.

mod address;
mod args;
#[cfg(feature = "client")]
mod client;
#[cfg(not(feature = "client"))]
#[path = "absent.rs"]
mod client;
mod environment;
mod instance;
#[cfg(feature = "client")]
mod login;
mod settings;

pub use address::{InvalidAddress, RegistryAddress, host_and_port};
pub use args::RegistryArgs;
pub use client::RegistryClient;
pub use environment::UnusableEnvironment;
pub use instance::Instance;
pub use settings::{RegistryError, RegistrySettings};

/// Whether there is a client: what would need one is refused otherwise.
pub const HAS_CLIENT: bool = cfg!(feature = "client");

/// The registry client's own log lines, which are many and say what ours say: off, unless the
/// operator's directives, which come after this one, name it.
pub const LOG_DIRECTIVE: &str = "nacos_sdk=off";
