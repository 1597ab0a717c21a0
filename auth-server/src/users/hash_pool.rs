//! Bounds the simultaneous password checks and orders the waiting ones. A check takes 19 MiB and a
//! core for tens of milliseconds: more of them than cores would be no faster and exhaust the
//! memory.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::available_parallelism;

use parking_lot::{Mutex, MutexGuard};
use runtime::net::client_prefix::ClientPrefix;
use tokio::sync::oneshot;

use self::queue::{Position, Queue};

mod queue;

/// Waiting clients for each running check, in each of the two queues: about three seconds' worth,
/// after which a client would have given up.
const WAITING_PER_RUNNING: usize = 128;
/// Max checks at once: with more cores the memory is the limit.
const MAX_RUNNING: usize = 16;

/// The running and waiting checks; clones share them.
#[derive(Debug, Clone)]
pub(super) struct HashPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max_running: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    running: usize,
    queue: Queue,
}

/// Permit for one password check, released on drop.
#[derive(Debug)]
pub(super) struct HashPermit(HashPool);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Busy;

impl HashPool {
    /// Sizes the pool for the cores of this machine or container.
    pub(super) fn for_this_machine() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let running = cores.min(MAX_RUNNING);
        Self::new(running, running * WAITING_PER_RUNNING)
    }

    fn new(max_running: usize, queue_length: usize) -> Self {
        Self(Arc::new(Shared {
            max_running,
            state: Mutex::new(State {
                running: 0,
                queue: Queue::new(queue_length),
            }),
        }))
    }

    /// Waits for a permit. `is_known` where the account has logged in from this client before.
    pub(super) async fn permit(&self, client: IpAddr, is_known: bool) -> Result<HashPermit, Busy> {
        let Some(mut waiting) = self.enqueue(ClientPrefix::network(client), is_known)? else {
            return Ok(HashPermit(self.clone()));
        };
        (&mut waiting.granted).await.map_err(|_| Busy)?;
        waiting.taken = true;
        Ok(HashPermit(self.clone()))
    }

    /// Joins the queue; `None` if a permit is free at once.
    fn enqueue(&self, network: ClientPrefix, is_known: bool) -> Result<Option<Waiting>, Busy> {
        let mut state = self.state();
        if state.running < self.0.max_running {
            state.running += 1;
            return Ok(None);
        }
        let (grant, granted) = oneshot::channel();
        let position = state.queue.push(network, is_known, grant).ok_or(Busy)?;
        Ok(Some(Waiting {
            pool: self.clone(),
            position,
            granted,
            taken: false,
        }))
    }

    /// Hands a released permit to the next in the queue.
    fn pass_on(&self, state: &mut State) {
        while let Some(next) = state.queue.pop() {
            if next.send(()).is_ok() {
                return;
            }
        }
        state.running -= 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }
}

impl Drop for HashPermit {
    fn drop(&mut self) {
        self.0.pass_on(&mut self.0.state());
    }
}

/// A position in the queue, given up when its client hangs up.
#[derive(Debug)]
struct Waiting {
    pool: HashPool,
    position: Position,
    granted: oneshot::Receiver<()>,
    taken: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        // Permits are granted under the same lock: it is either still in the queue or finally
        // granted.
        let mut state = self.pool.state();
        if !state.queue.remove(&self.position) && self.granted.try_recv().is_ok() {
            self.pool.pass_on(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::net::Ipv4Addr;
    use std::pin::Pin;

    use futures_util::FutureExt;

    use super::*;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    type Waits = Pin<Box<dyn Future<Output = Result<HashPermit, Busy>>>>;

    /// Returns an address in the `n`th network.
    fn network(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, n, 1).into()
    }

    fn waits(pool: &HashPool, client: IpAddr, is_known: bool) -> Waits {
        let pool = pool.clone();
        let mut turn: Waits = Box::pin(async move { pool.permit(client, is_known).await });
        assert!((&mut turn).now_or_never().is_none(), "it waits");
        turn
    }

    /// Takes the permit that was granted in this queue.
    fn next_of(line: &mut Vec<Waits>) -> Option<HashPermit> {
        let (at, turn) = line.iter_mut().enumerate().find_map(|(at, turn)| {
            let turn = turn.now_or_never()?;
            Some((at, turn.ok()?))
        })?;
        drop(line.remove(at));
        Some(turn)
    }

    fn is_rejected(turn: &mut Waits) -> bool {
        matches!(turn.now_or_never(), Some(Err(Busy)))
    }

    #[tokio::test]
    async fn some_run_some_wait_and_the_rest_are_sent_away() {
        let pool = HashPool::new(2, 1);
        let first = pool.permit(HOME, false).now_or_never().unwrap().unwrap();
        let _second = pool.permit(HOME, false).now_or_never().unwrap().unwrap();
        let mut third = waits(&pool, HOME, false);
        let fourth = pool.permit(HOME, false).now_or_never().unwrap();
        assert_eq!(fourth.err(), Some(Busy));

        drop(first);
        let third = (&mut third).now_or_never().unwrap();
        assert!(third.is_ok(), "the first one's end is its turn");
    }

    #[tokio::test]
    async fn a_client_that_hangs_up_while_waiting_leaves_the_queue() {
        let pool = HashPool::new(1, 1);
        let running = pool.permit(HOME, false).await.unwrap();
        let waiting = waits(&pool, HOME, false);
        assert!(pool.permit(HOME, false).now_or_never().unwrap().is_err());
        drop(waiting);
        let granted = waits(&pool, HOME, false);
        drop(running);
        // Granted, and never taken.
        drop(granted);
        let next = pool.permit(HOME, false).now_or_never();
        assert!(next.unwrap().is_ok(), "the turn was lost");
    }

    #[tokio::test]
    async fn networks_take_turns_however_many_wait_from_one() {
        let pool = HashPool::new(1, 100);
        let running = pool.permit(network(0), false).await.unwrap();
        let mut crowd: Vec<_> = (0..50).map(|_| waits(&pool, network(1), false)).collect();
        let mut single = waits(&pool, network(2), false);
        drop(running);
        let first = (&mut crowd[0]).now_or_never().unwrap().unwrap();
        drop(first);
        let turn = (&mut single).now_or_never();
        assert!(matches!(turn, Some(Ok(_))), "one of the crowd is enough");
    }

    #[tokio::test]
    async fn a_full_queue_has_room_for_a_network_that_has_fewer() {
        let pool = HashPool::new(1, 8);
        let _running = pool.permit(network(0), false).await.unwrap();
        let mut crowd: Vec<_> = (0..8).map(|_| waits(&pool, network(1), false)).collect();
        let mut others: Vec<_> = (2..6).map(|n| waits(&pool, network(n), false)).collect();
        let rejected: Vec<_> = crowd.iter_mut().map(is_rejected).collect();
        // The last to join make room.
        let expected = [false, false, false, false, true, true, true, true];
        assert_eq!(rejected, expected);
        assert!(!others.iter_mut().any(is_rejected));
        let more = pool.permit(network(1), false).now_or_never().unwrap();
        assert_eq!(more.err(), Some(Busy), "it has more than its share");
    }

    #[tokio::test]
    async fn known_clients_have_half_of_the_queue_and_turns() {
        let pool = HashPool::new(1, 100);
        let mut running = pool.permit(network(0), false).await.unwrap();
        let mut unknown: Vec<_> = (0..100).map(|n| waits(&pool, network(n), false)).collect();
        let another = pool.permit(network(200), false).now_or_never().unwrap();
        assert_eq!(another.err(), Some(Busy), "as many networks as places");
        let mut known: Vec<_> = (0..3).map(|_| waits(&pool, HOME, true)).collect();
        let mut turns = Vec::new();
        for _ in 0..6 {
            drop(running);
            let of_known = next_of(&mut known);
            turns.push(of_known.is_some());
            running = of_known.unwrap_or_else(|| next_of(&mut unknown).unwrap());
        }
        assert_eq!(turns, [true, false, true, false, true, false]);
    }
}
