//! The service registry (Nacos, contract §1 and §4.3) of both programs: its URL, registrations, and
//! the instances of a service.
//!
//! Not here: the time of a registration (`auth-server`) and the choice of an instance (`sidecar`).

mod api;
mod client;
mod error;
mod instance;
mod settings;

pub use client::RegistryClient;
pub use error::RegistryError;
pub use instance::Instance;
pub use settings::{Instances, InvalidRegistryUrl, RegistrySettings};
