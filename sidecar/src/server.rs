//! The running program: its services, its listeners, its reload and its end.

pub(crate) mod build;
mod listener;
pub(crate) mod reload;
mod reminder;
mod services;
mod shutdown;
