//! The service behind the sidecar: its responses, streams, failures, probes.

mod address_families;
mod cut_off_responses;
mod grpc_rejections;
mod interim_responses;
mod protected_resource;
mod service_probes;
mod service_versions;
mod streams;
mod surplus;
mod unread_responses;
mod upstream_failures;
pub(super) mod upstreams;
