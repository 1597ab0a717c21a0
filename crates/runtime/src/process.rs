//! The process itself: exit codes, output of commands, signals, supervised tasks, clock, memory.

pub mod clock;
pub mod exit;
pub mod memory_limit;
pub mod output;
pub mod signals;
pub mod supervisor;
