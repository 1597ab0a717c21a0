//! The three commands.

pub(crate) mod inject;
pub(crate) mod lint;
pub(crate) mod webhook;
