//! The kernel's table of connections. Where a firewall follows them, also those over loopback, it keeps each
//! for two minutes behind its end, and drops the first packet of any further one once the table is full: to a
//! client that looks like a service that does not respond.

use std::time::Duration;

/// The part of the table that a walk leaves to others.
const RESERVE: usize = 8;
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until the table has room for the connections of one more case.
pub(super) async fn room() {
    while is_full() {
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_full() -> bool {
    let (Some(count), Some(max)) = (number("nf_conntrack_count"), number("nf_conntrack_max"))
    else {
        return false;
    };
    count > max - max / RESERVE
}

/// Returns a number of the table; `None` where the kernel has none.
fn number(name: &str) -> Option<usize> {
    let path = format!("/proc/sys/net/netfilter/{name}");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the number of packets that were dropped so far because the table was full.
pub(super) fn dropped() -> u64 {
    let stat = std::fs::read_to_string("/proc/net/stat/nf_conntrack").unwrap_or_default();
    let mut lines = stat.lines();
    let names = lines.next().unwrap_or_default();
    let Some(column) = names.split_whitespace().position(|name| name == "drop") else {
        return 0;
    };
    let of_cpu = |line: &str| {
        let value = line.split_whitespace().nth(column)?;
        u64::from_str_radix(value, 16).ok()
    };
    lines.filter_map(of_cpu).sum()
}
