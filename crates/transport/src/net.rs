//! Listeners, slots and write deadlines of their connections, shares of a limit, client addresses.

pub mod client_address;
pub mod client_prefix;
pub mod connection_slots;
pub mod fd_limit;
pub mod listener;
pub mod shares;
pub mod unfinished;
pub mod write_deadline;
