//! The harness of the end-to-end tests: actors for every part around the two programs.
//!
//! The harness builds nothing; it runs the programs that `cargo build --workspace` left beside the
//! test executable, over real sockets only. Everything here is blocking: a test is one thread that
//! waits on conditions with deadlines and never sleeps for a fixed time.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a harness reports by panicking: the test that called it fails with the message"
)]

pub mod abuse;
pub mod applications;
pub mod auth_server;
pub mod browser;
pub mod careless_service;
pub mod certificates;
pub mod client;
pub mod clock;
pub mod connect_proxy;
pub mod dashboard;
pub mod documented;
pub mod echo_service;
pub mod expect;
pub mod fake_auth_server;
pub mod file_mounts;
pub mod file_store;
pub mod free_address;
pub mod go;
pub mod h2_client;
pub mod h2_service;
pub mod issuer;
pub mod json_schema;
pub mod loopback;
pub mod message;
pub mod metrics;
pub mod moved_clock;
pub mod nacos_3;
pub mod node;
pub mod openapi;
pub mod otlp_collector;
pub mod peer_issuer;
pub mod process;
pub mod programs;
pub mod prometheus;
pub mod python;
pub mod raw_client;
pub mod redis_server;
pub mod redis_topologies;
pub mod reference;
pub mod rnacos_server;
pub mod sessions;
pub mod setting;
pub mod sidecar;
pub mod skip;
pub mod small_disk;
pub mod socket_server;
pub mod stack;
pub mod streaming_service;
pub mod tables;
pub mod template;
pub mod tls;
pub mod tls_service;
pub mod token_forge;
pub mod users_file;
pub mod wait;

pub use token_corpus::{keys, token_rows};
