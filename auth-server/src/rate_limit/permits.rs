//! Bounds the work that is done at once. Further callers wait for a while, networks and the clients of each
//! in turns, so that a flood from one keeps no other waiting. The bound on requests in flight is the bound on
//! waiting callers; a caller that has given up stays in memory until its turn.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postern_transport::net::client_prefix::ClientPrefix;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Longest wait for a permit, after which a client would have given up.
const MAX_WAIT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Permits(Arc<Mutex<State>>);

/// A permit, which is passed on to the next caller when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    /// The waiting callers by network and client; no inner queue is empty.
    waiting: Turns<Turns<VecDeque<oneshot::Sender<Permit>>>>,
}

/// The queues of networks, or of clients; `None` for callers without a client. The first has the next turn.
type Turns<Q> = VecDeque<(Option<ClientPrefix>, Q)>;

impl Permits {
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: max,
            waiting: VecDeque::new(),
        })))
    }

    /// Waits for a permit; `None` after too long.
    pub(crate) async fn take(&self, client: Option<IpAddr>) -> Option<Permit> {
        // The block ends the lock before the wait: permits could not be given back meanwhile.
        let waiting = {
            let mut state = self.0.lock();
            // A free permit means that no caller waits: a returned permit goes straight to the next in turn.
            if state.free > 0 {
                state.free -= 1;
                return Some(Permit(Arc::clone(&self.0)));
            }
            let (ready, waiting) = oneshot::channel();
            let clients = queue_or_new(&mut state.waiting, client.map(ClientPrefix::network));
            queue_or_new(clients, client.map(ClientPrefix::client)).push_back(ready);
            waiting
        };
        timeout(MAX_WAIT, waiting).await.ok()?.ok()
    }
}

/// Returns the queue of a network or client: after all others if it is new.
fn queue_or_new<Q: Default>(turns: &mut Turns<Q>, waiting: Option<ClientPrefix>) -> &mut Q {
    let index = match turns.iter().position(|(other, _)| *other == waiting) {
        Some(index) => index,
        None => {
            turns.push_back((waiting, Q::default()));
            turns.len() - 1
        }
    };
    &mut turns[index].1
}

impl State {
    /// Returns the caller whose turn it is; its client and its network have the last turns then. Callers that
    /// have given up are removed, and take no turn of their network.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        while let Some((network, mut clients)) = self.waiting.pop_front() {
            while let Some((client, mut queue)) = clients.pop_front() {
                let mut callers = std::iter::from_fn(|| queue.pop_front());
                let Some(next) = callers.find(|caller| !caller.is_closed()) else {
                    continue;
                };
                // Emptied queues are dropped; others go to the end, which ends their turn.
                if !queue.is_empty() {
                    clients.push_back((client, queue));
                }
                if !clients.is_empty() {
                    self.waiting.push_back((network, clients));
                }
                return Some(next);
            }
        }
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // The lock ends before the send, whose failure drops the permit and takes the lock again.
        let next = {
            let mut state = self.0.lock();
            let next = state.next();
            if next.is_none() {
                state.free += 1;
            }
            next
        };
        if let Some(next) = next {
            // A caller that has just given up passes the permit on by dropping it.
            let _ = next.send(Self(Arc::clone(&self.0)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::task::Poll;

    use futures_util::future::join_all;
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn some_run_one_waits_and_a_flood_is_sent_away_in_bounded_time() {
        tokio::time::pause();
        let pool = Permits::new(2);
        let running = [
            pool.take(None).await.unwrap(),
            pool.take(None).await.unwrap(),
        ];
        let flood = join_all((0..1000).map(|_| pool.take(None))).await;
        assert!(flood.iter().all(Option::is_none));

        let (waiting, ()) = tokio::join!(pool.take(None), async {
            tokio::time::sleep(MAX_WAIT / 2).await;
            drop(running);
        });
        assert!(waiting.is_some(), "the end of a check is its turn");
        drop(waiting);
        assert_eq!(pool.0.lock().free, 2);
        assert!(pool.0.lock().waiting.is_empty());
    }

    /// Lets clients wait in this order behind one that runs, and returns the order in which they are served.
    async fn order(arrivals: &[&'static str]) -> Vec<&'static str> {
        let pool = Permits::new(1);
        let mut running = pool.take(None).await;
        let mut waiting = Vec::new();
        for client in arrivals {
            let mut taken = Box::pin(pool.take(client.parse().ok()));
            assert!(poll!(&mut taken).is_pending());
            waiting.push((*client, taken));
        }
        let mut served = Vec::new();
        while !waiting.is_empty() {
            drop(running.take());
            for at in 0..waiting.len() {
                if let Poll::Ready(permit) = poll!(&mut waiting[at].1) {
                    running = permit;
                    served.push(waiting.remove(at).0);
                    break;
                }
            }
        }
        served
    }

    #[tokio::test]
    async fn networks_take_turns_and_so_do_the_clients_of_each() {
        for (arrivals, expected) in [
            // A flood, and the first of another client.
            (
                ["192.0.2.1", "192.0.2.1", "192.0.2.1", "198.51.100.1"],
                ["192.0.2.1", "198.51.100.1", "192.0.2.1", "192.0.2.1"],
            ),
            // Many addresses of one network are one.
            (
                ["192.0.2.1", "192.0.2.2", "192.0.2.3", "198.51.100.1"],
                ["192.0.2.1", "198.51.100.1", "192.0.2.2", "192.0.2.3"],
            ),
            // A neighbour waits for one of each.
            (
                ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"],
                ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.1"],
            ),
            (
                [
                    "2001:db8::1",
                    "2001:db8::2",
                    "::ffff:192.0.2.1",
                    "192.0.2.1",
                ],
                [
                    "2001:db8::1",
                    "::ffff:192.0.2.1",
                    "2001:db8::2",
                    "192.0.2.1",
                ],
            ),
        ] {
            assert_eq!(order(&arrivals).await, expected);
        }
    }

    #[tokio::test]
    async fn who_gave_up_costs_its_network_no_turn() {
        let pool = Permits::new(1);
        let running = pool.take(None).await;
        let take = |client: &str| Box::pin(pool.take(client.parse().ok()));
        let (mut gone, mut neighbour) = (take("192.0.2.1"), take("192.0.2.2"));
        let mut other = take("198.51.100.1");
        for waiting in [&mut gone, &mut neighbour, &mut other] {
            assert!(poll!(waiting).is_pending());
        }
        drop(gone);
        drop(running);
        assert!(poll!(&mut other).is_pending());
        assert!(poll!(&mut neighbour).is_ready());
    }
}
