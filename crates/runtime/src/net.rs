//! Sockets and addresses: listeners, their limits, write deadlines, `host:port`, URLs, client addresses.

pub mod client_address;
pub mod client_prefix;
pub mod connection_slots;
pub mod fd_limit;
pub mod host_port;
pub mod listener;
pub mod loopback;
pub mod server_url;
pub mod shares;
pub mod unfinished;
pub mod write_deadline;
