//! The three commands.

pub(crate) mod inject;
pub(crate) mod webhook;
