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

pub mod actors;
pub mod cuts;
pub mod services;
pub mod skip;
pub mod tables;
pub mod wait;
pub mod wire;

pub use token_corpus::{keys, proof_rows, token_rows};
