//! The sidecar's container: its template, settings and resources.

pub(crate) mod component;
pub(crate) mod resources;
pub(crate) mod settings;
