//! The programs under test, and those that use them: clients, operators, forgers.

pub mod abuse;
pub mod applications;
pub mod auth_server;
pub mod browser;
pub mod client;
pub mod expect;
pub mod file_store;
pub mod issuer;
pub mod process;
pub mod programs;
pub mod proving_client;
pub mod sessions;
pub mod setting;
pub mod sidecar;
pub mod stack;
pub mod token_forge;
pub mod users_file;
