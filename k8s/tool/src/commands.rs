//! The commands.

pub(crate) mod inject;
pub(crate) mod webhook;
