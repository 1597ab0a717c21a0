//! Slots of connections. A full set evicts an old connection for a new one: a rejected probe would
//! mean that a healthy program is dead, and an old connection is not a probe.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// A peer with too many connections opens them again and again.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The connections of one kind of peers.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    max: usize,
    /// The oldest first.
    taken: Vec<Taken>,
    warned: Option<Instant>,
}

#[derive(Debug)]
struct Taken {
    peer: IpAddr,
    served: JoinHandle<()>,
}

impl ConnectionSlots {
    pub(super) const fn new(max: usize) -> Self {
        Self {
            max,
            taken: Vec::new(),
            warned: None,
        }
    }

    /// Waits for a free slot, and evicts a connection if necessary. The evicted connection and its
    /// descriptor are closed on return.
    pub(super) async fn make_room(&mut self) {
        self.taken.retain(|slot| !slot.served.is_finished());
        while self.taken.len() >= self.max {
            let peers: Vec<_> = self.taken.iter().map(|slot| slot.peer).collect();
            let evicted = self.taken.remove(eviction_candidate(&peers));
            evicted.served.abort();
            let _ = evicted.served.await;
            self.warn_of(evicted.peer);
        }
    }

    /// Takes a free slot.
    pub(super) fn take(&mut self, peer: IpAddr, served: JoinHandle<()>) {
        self.taken.push(Taken { peer, served });
    }

    fn warn_of(&mut self, peer: IpAddr) {
        let now = Instant::now();
        let is_recent = |last| now.duration_since(last) < WARNING_INTERVAL;
        if !self.warned.is_some_and(is_recent) {
            self.warned = Some(now);
            tracing::warn!(%peer, "admin port: too many connections; the oldest of this peer is closed");
        }
    }
}

/// Returns the oldest connection of the address that has the most, so that an address with fewer
/// keeps its slots.
fn eviction_candidate(peers: &[IpAddr]) -> usize {
    let held = |peer: &IpAddr| peers.iter().filter(|other| *other == peer).count();
    let most = peers.iter().map(held).max().unwrap_or_default();
    peers
        .iter()
        .position(|peer| held(peer) == most)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_of_whoever_has_the_most() {
        for (hosts, gone) in [
            (&[1][..], 0),
            (&[1, 2], 0),
            (&[1, 2, 2], 1),
            (&[1, 2, 1, 2], 0),
            (&[3, 1, 2, 1, 2], 1),
            (&[3, 1, 2, 1, 2, 2], 2),
        ] {
            let peers: Vec<IpAddr> = hosts.iter().map(|host| [10, 0, 0, *host].into()).collect();
            assert_eq!(eviction_candidate(&peers), gone, "{hosts:?}");
        }
    }
}
