//! Shared parts of the measurements: load, CPU time, statistics, and output of results.
//!
//! Each bench target is one measurement and one `make` target. They start the real programs with
//! the harness of the tests, over loopback only.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that cannot be taken ends with a message"
)]

pub mod chart;
pub mod cpu;
pub mod document;
pub mod h2load;
pub mod keep_alive;
pub mod load;
pub mod machine;
pub mod settings;
pub mod statistics;
pub mod wrk;
