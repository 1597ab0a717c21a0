//! Who is being served. When there is no place left, the newest still gets one: a probe that is refused says
//! that a healthy program is dead, and a connection that has been there for long is not a probe.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// Who has too many connections has them again and again.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The connections of one kind of peers.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    /// The oldest first.
    taken: Vec<Taken>,
    warned: Option<Instant>,
}

#[derive(Debug)]
struct Taken {
    peer: IpAddr,
    served: JoinHandle<()>,
}

impl Places {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            taken: Vec::new(),
            warned: None,
        }
    }

    /// Waits until one is free. That is soon: a connection is cut off where it has to be, and is gone,
    /// together with its descriptor, when this returns.
    pub(super) async fn make_room(&mut self) {
        self.taken.retain(|place| !place.served.is_finished());
        while self.taken.len() >= self.most {
            let peers: Vec<_> = self.taken.iter().map(|place| place.peer).collect();
            let place = self.taken.remove(in_the_way(&peers));
            place.served.abort();
            let _ = place.served.await;
            self.warn_of(place.peer);
        }
    }

    /// To be called when there is room.
    pub(super) fn take(&mut self, peer: IpAddr, served: JoinHandle<()>) {
        self.taken.push(Taken { peer, served });
    }

    fn warn_of(&mut self, peer: IpAddr) {
        let now = Instant::now();
        let told = |last| now.duration_since(last) < WARNING_INTERVAL;
        if !self.warned.is_some_and(told) {
            self.warned = Some(now);
            tracing::warn!(%peer, "admin port: too many connections; the oldest of this peer is closed");
        }
    }
}

/// Which one goes: the oldest of the address that has the most, so that nobody costs others their place
/// who has not fewer than they.
fn in_the_way(peers: &[IpAddr]) -> usize {
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
            assert_eq!(in_the_way(&peers), gone, "{hosts:?}");
        }
    }
}
