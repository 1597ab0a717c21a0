//! The end-to-end tests: real binaries, real sockets, actors around them.
//!
//! One module for each area; names are sentences and begin with the row of the contract they prove
//! (`contract_4_1_rule_1_…`). The README lists row → test.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod e2e {
    mod access;
    mod accounts;
    mod configuration;
    mod limits;
    mod peers;
    mod requests;
    mod rooms;
    mod service;
    mod store;
    mod telemetry;
    mod tokens;
}
