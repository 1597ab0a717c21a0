//! Settings of a sidecar that other programs write for it, parsed alike by both.

pub mod probes;
