//! Addresses that are fixed before a program listens there, for two programs that need each
//! other's.

use std::net::{Ipv4Addr, SocketAddr};

/// Returns an address of this test process alone: the process id selects it in 127.0.0.0/8. `which`
/// separates several addresses of one process.
pub fn own_address(which: u16) -> SocketAddr {
    let [.., high, middle, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, high.wrapping_add(64), middle, low.max(1));
    SocketAddr::new(ip.into(), 20_000 + which)
}
