//! The service registry (Nacos, contract §1 and §4.3) of both programs: its address, registrations,
//! and the instances of a service.
//!
//! Not here: the time of a registration (`auth-server`) and the choice of an instance (`sidecar`).
//! The crate `nacos-sdk` is known to one file, `client`.

mod address;
mod args;
#[cfg(feature = "client")]
mod client;
#[cfg(not(feature = "client"))]
#[path = "stub.rs"]
mod client;
mod environment;
mod instance;
#[cfg(feature = "client")]
mod login;
mod settings;

pub use address::{InvalidAddress, RegistryAddress};
pub use args::RegistryArgs;
pub use client::RegistryClient;
pub use environment::UnusableEnvironment;
pub use instance::Instance;
pub use settings::{RegistryError, RegistrySettings};

/// True if there is a client: settings that need one are rejected otherwise.
pub const HAS_CLIENT: bool = cfg!(feature = "client");

/// Switches off the registry client's own log lines, which are many and repeat ours, unless the
/// operator's directives, which come after this one, name it.
pub const LOG_DIRECTIVE: &str = "nacos_sdk=off";
