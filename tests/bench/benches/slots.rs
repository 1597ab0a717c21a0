//! The choice of a connection that gives way on a full port, in microseconds: with the clients' slots
//! all taken from one address, from 20, and from one each. `make bench-slots`.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program at a terminal; a measurement that cannot be taken ends with a message"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use runtime::net::connection_slots::{ConnectionSlots, MAX_LEAVING, Slot};

const SLOTS: usize = 16_384;
/// At most, on the machine of docs/performance.md.
const TARGET_MICROSECONDS: f64 = 20.0;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("| addresses of {SLOTS} connections | µs for a choice, median (max) | target |");
    println!("|---|---|---|");
    for addresses in [1, 20, SLOTS] {
        let mut choices = choices(addresses).await;
        choices.sort_by(f64::total_cmp);
        let median = choices.get(choices.len() / 2).expect("a choice");
        let max = choices.last().expect("a choice");
        println!("| {addresses} | {median:.1} ({max:.1}) | {TARGET_MICROSECONDS} |");
    }
}

/// Takes slots on a full port, one after the other, and returns the time for each.
async fn choices(addresses: usize) -> Vec<f64> {
    let mut choices = Vec::new();
    while choices.len() < 1_000 {
        let slots = ConnectionSlots::new("bench", SLOTS);
        let _held = full(&slots, addresses).await;
        // More would wait for the end of a connection that gives way.
        let mut taken: Vec<Slot> = Vec::with_capacity(MAX_LEAVING);
        for newcomer in 1..=MAX_LEAVING {
            let newcomer = address(0xc000_0200, newcomer);
            let before = Instant::now();
            let slot = slots.take(newcomer, false).await.expect("a slot");
            choices.push(before.elapsed().as_secs_f64() * 1e6);
            taken.push(slot);
        }
    }
    choices
}

/// Takes every slot for as many addresses, of proxies: a client alone only gets its share.
async fn full(slots: &ConnectionSlots, addresses: usize) -> Vec<Slot> {
    let mut held = Vec::with_capacity(SLOTS);
    for number in 0..SLOTS {
        held.extend(
            slots
                .take(address(0x0a00_0000, number % addresses), true)
                .await,
        );
    }
    held
}

fn address(first: u32, number: usize) -> IpAddr {
    Ipv4Addr::from_bits(first + u32::try_from(number).expect("a small number")).into()
}
