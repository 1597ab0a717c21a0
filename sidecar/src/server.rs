//! The running program: its services, its listeners, its reload and its end.

pub(crate) mod build;
pub(crate) mod listener;
pub(crate) mod reload;
mod services;
pub(crate) mod shutdown;
