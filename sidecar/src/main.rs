//! The program; its rooms stand in `lib.rs`, which the simulation uses too.

use std::process::ExitCode;

/// Several times quicker than the C library.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    sidecar::run_process()
}
