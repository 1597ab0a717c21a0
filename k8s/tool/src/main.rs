//! Kubernetes manifests: the sidecar of a pod, the Services that lead to it, and what is missing.
//!
//! One set of functions for three ways in: `inject` edits a stream of YAML, `webhook` patches an
//! object at its admission, `lint` reads what another tool has made. The container itself is the
//! one of the kustomize component, which is part of the program.

pub(crate) mod admission;
pub(crate) mod annotations;
pub(crate) mod component;
pub(crate) mod inject;
pub(crate) mod lint;
mod metadata;
pub(crate) mod object;
pub(crate) mod patch;
mod pod;
mod ports;
mod probes;
mod services;
pub(crate) mod settings;
pub(crate) mod yaml;

#[cfg(test)]
mod tests;

/// An object that gets no sidecar, and the reason. The operator reads both.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {reason}")]
pub(crate) struct Rejected {
    pub(crate) object: String,
    pub(crate) reason: String,
}

impl Rejected {
    pub(crate) fn new(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            object: object.into(),
            reason: reason.into(),
        }
    }
}
