//! The service registry (Nacos, contract §1 and §4.3) as both programs see it: where it is, how one
//! registers there, and which instances of a service it lists.
//!
//! Not here: who registers when (`auth-server`) and which instance is asked (`sidecar`). The crate
//! `nacos-sdk` is known to one file, `client`.

mod address;
mod args;
mod client;
mod environment;
mod instance;
mod login;

pub use address::{InvalidAddress, RegistryAddress};
pub use args::RegistryArgs;
pub use client::{RegistryClient, RegistryError, RegistrySettings};
pub use environment::UnusableEnvironment;
pub use instance::Instance;

/// The registry client's own log lines, which are many and say what ours say: off, unless the
/// operator's directives, which come after this one, name it.
pub const LOG_DIRECTIVE: &str = "nacos_sdk=off";
