//! Slots of connections. A full set ends an old connection for a new one: a rejected probe would
//! mean that a healthy program is dead, and silent peers would keep reviews from a webhook.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::Instant;

use tokio::task::JoinHandle;

use crate::logs::once_a_minute::OnceAMinute;

/// The connections of one kind of peers, each with a state that the port defines.
#[derive(Debug)]
pub struct ConnectionSlots<S> {
    /// The name of the port in the log.
    port: &'static str,
    max: usize,
    /// Connections of one address that are not too many.
    fair_share: usize,
    /// The oldest first.
    taken: Vec<Taken<S>>,
    /// A peer with too many connections opens them again and again.
    warned: OnceAMinute,
}

#[derive(Debug)]
struct Taken<S> {
    peer: IpAddr,
    served: JoinHandle<()>,
    state: S,
}

impl<S> ConnectionSlots<S> {
    /// Returns `max` free slots. A full set ends connections of addresses with more than
    /// `fair_share` before those of others.
    pub fn new(port: &'static str, max: usize, fair_share: usize) -> Self {
        Self {
            port,
            max,
            fair_share,
            taken: Vec::new(),
            warned: OnceAMinute::default(),
        }
    }

    /// Frees a slot, and ends a connection with a `rank` if necessary, whose descriptor is closed on
    /// return. Returns false while all slots are taken by connections without one.
    pub async fn make_room<R: Ord>(&mut self, rank: impl Fn(&S) -> Option<R>) -> bool {
        self.taken.retain(|slot| !slot.served.is_finished());
        while self.taken.len() >= self.max {
            let slots = self.taken.iter().enumerate();
            let ranked = slots.filter_map(|(at, slot)| Some((at, slot.peer, rank(&slot.state)?)));
            let Some(at) = eviction_candidate(&ranked.collect::<Vec<_>>(), self.fair_share) else {
                return false;
            };
            let evicted = self.taken.remove(at);
            evicted.served.abort();
            let _ = evicted.served.await;
            if self.warned.is_due(Instant::now()) {
                let (port, peer) = (self.port, evicted.peer);
                tracing::warn!(%peer, "{port}: too many connections; an old one of this peer is closed");
            }
        }
        true
    }

    /// Takes a free slot.
    pub fn take(&mut self, peer: IpAddr, served: JoinHandle<()>, state: S) {
        self.taken.push(Taken {
            peer,
            served,
            state,
        });
    }
}

/// Returns a connection of the address that has the most, among addresses within their share of any
/// of them: there the oldest of the lowest rank.
fn eviction_candidate<R: Ord>(ranked: &[(usize, IpAddr, R)], fair_share: usize) -> Option<usize> {
    let held = |peer: &IpAddr| ranked.iter().filter(|(_, other, _)| other == peer).count();
    let evicted = ranked
        .iter()
        .min_by_key(|&(_, peer, rank)| (Reverse(held(peer).max(fair_share)), rank));
    evicted.map(|(at, ..)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_peer_loses_its_oldest_of_the_lowest_rank() {
        for (fair_share, hosts, gone) in [
            (1, &[][..], None),
            (1, &[(1, 1)], Some(0)),
            (1, &[(1, 1), (2, 1)], Some(0)),
            (1, &[(1, 1), (2, 1), (2, 1)], Some(1)),
            (1, &[(1, 1), (2, 1), (1, 1), (2, 1)], Some(0)),
            (1, &[(3, 1), (1, 1), (2, 1), (1, 1), (2, 1)], Some(1)),
            (
                1,
                &[(3, 1), (1, 1), (2, 1), (1, 1), (2, 1), (2, 1)],
                Some(2),
            ),
            (1, &[(1, 0), (2, 2), (2, 1), (2, 1)], Some(2)),
            (1, &[(9, 1), (9, 1), (1, 0), (2, 0), (3, 0)], Some(0)),
            (2, &[(9, 1), (9, 1), (1, 0), (2, 0), (3, 0)], Some(2)),
            (2, &[(9, 1), (9, 1), (9, 1), (1, 0), (2, 0)], Some(0)),
        ] {
            let ranked = hosts.iter().enumerate();
            let ranked: Vec<(usize, IpAddr, u8)> = ranked
                .map(|(at, (host, rank))| (at, [10, 0, 0, *host].into(), *rank))
                .collect();
            assert_eq!(eviction_candidate(&ranked, fair_share), gone, "{hosts:?}");
        }
    }
}
