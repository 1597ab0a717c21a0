//! The issuers: their verification keys, where these come from, and the schedule of fetches.

mod backoff;
pub(crate) mod cache;
pub(crate) mod current;
pub(crate) mod fetch;
mod fetch_span;
mod http_client;
pub(crate) mod issuer_keys;
mod jwks;
pub(crate) mod jwks_address;
pub(crate) mod key_metrics;
pub(crate) mod key_response;
pub(crate) mod kubernetes;
mod link_header;
pub(crate) mod on_demand;
pub(crate) mod proxy;
pub(crate) mod readiness;
pub(crate) mod refresh;
pub(crate) mod revocation_refresh;
pub(crate) mod revocations;
pub(crate) mod schedule;
pub(crate) mod source;
pub(crate) mod tls;
pub(crate) mod token_cache;
