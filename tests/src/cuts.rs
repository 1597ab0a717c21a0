//! Every cut of an exchange: recorded exchanges between a scripted client and a scripted service, with a
//! sidecar between them, each of whose four directions is cut at every byte. After each cut the laws are
//! checked: on the exchange itself, and on probes that use whatever was kept.

mod batch;
mod client;
mod cut;
mod exchange;
mod laws;
mod pace;
mod part;
mod reading;
mod script;
mod service;
mod tracking;
mod walk;
mod world;

pub use self::walk::{Share, Walk};
