//! Objects of a manifest: their names, kinds, labels, and what the tool changed in them.

pub(crate) mod metadata;
pub(crate) mod names;
pub(crate) mod object;
pub(crate) mod original;
