//! The store: files, Redis, failures, encryption at rest.

mod check_store;
mod encryption_at_rest;
mod file_store;
mod redis_store;
mod redis_topologies;
mod store_crashes;
mod store_failures;
mod stored_keys;
