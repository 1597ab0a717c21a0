//! Ports, protocols and probes of a pod, and of the Services that lead to it.

pub(crate) mod ports;
pub(crate) mod probes;
pub(crate) mod protocol;
pub(crate) mod protocol_words;
pub(crate) mod services;
