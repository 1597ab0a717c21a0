//! The running program: its services, its listeners, connections of clients, its reload and its end.

mod background;
pub(crate) mod build;
mod connections;
mod listener;
pub(crate) mod reload;
mod reminder;
mod services;
mod shutdown;
