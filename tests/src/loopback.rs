//! Addresses that are known before anybody listens there: two programs may have to know each other's.

use std::net::{Ipv4Addr, SocketAddr};

/// An address of this test process alone: all of 127.0.0.0/8 is this machine, and the process id says
/// where in it. `which` tells several of one process apart.
pub fn own_address(which: u16) -> SocketAddr {
    let [.., high, middle, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, high.wrapping_add(64), middle, low.max(1));
    SocketAddr::new(ip.into(), 20_000 + which)
}
