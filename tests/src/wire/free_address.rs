//! Addresses for actors that others have to know before they start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Ports below those that Linux gives to clients and to port 0: nothing else gets one by chance. They
/// begin behind 10080, the highest one that browsers and Node's `fetch` block.
const FIRST_PORT: u32 = 10_100;
/// So many are given, and as many behind them are their guards.
const PORTS: u32 = 11_000;
/// Tests that run at the same time begin their search far from each other.
const PORTS_OF_A_PROCESS: u32 = 16;

/// Returns an address that is free, and that no other test is given while this one runs, also while
/// nothing listens there.
///
/// # Panics
/// When no port is free.
pub fn free_address() -> SocketAddr {
    let first = std::process::id().wrapping_mul(PORTS_OF_A_PROCESS);
    let mut numbers = (0..PORTS).map(|number| first.wrapping_add(number) % PORTS);
    let free = numbers.find_map(|number| {
        let [address, guard] = [number, number + PORTS].map(|number| {
            let port = u16::try_from(FIRST_PORT + number).expect("a port");
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        });
        let guard = TcpListener::bind(guard).ok()?;
        TcpListener::bind(address).ok()?;
        // It stays to the end of the process.
        std::mem::forget(guard);
        Some(address)
    });
    free.expect("a free port")
}
