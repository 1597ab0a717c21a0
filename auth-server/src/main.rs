//! The program; its rooms stand in `lib.rs`, which the simulation uses too.

use std::process::ExitCode;

/// mimalloc: a response makes some hundred allocations, nearly all of them within axum and hyper.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    auth_server::run_process()
}
