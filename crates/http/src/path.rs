//! Paths: their canonical form, the most lenient reading, patterns, the second path of a request.

pub mod canonical;
pub mod destination;
pub mod loose;
pub mod overrides;
pub mod patterns;
