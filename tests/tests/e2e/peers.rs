//! Other programs: languages, frameworks, conformance suites, Kubernetes, the registry.

mod conformance;
mod inject;
mod interop;
pub(super) mod languages;
mod mcp;
mod registry;
mod spring;
pub(super) mod webhook;
