//! Addresses for actors that others have to know before they start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports below those that Linux gives to clients and to port 0: nothing else gets one by chance.
const FIRST_PORT: u32 = 10_000;
const PORTS: u32 = 22_000;
/// More than a test needs; each runs in a process of its own.
const PORTS_OF_A_PROCESS: u32 = 16;

/// Returns an address that is free, and that no other test is given.
///
/// # Panics
/// When no port is free.
pub fn free_address() -> SocketAddr {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_OF_A_PROCESS);
    let mut addresses = (0..PORTS).map(|_| {
        let number = first.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST_PORT + number % PORTS).expect("a port");
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    });
    let free = addresses.find(|address| TcpListener::bind(address).is_ok());
    free.expect("a free port")
}
