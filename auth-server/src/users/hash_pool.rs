//! How many passwords are checked at once, and whose turn is next. One check takes 19 MiB and a core
//! for tens of milliseconds: more at a time than there are cores would be no faster and could take all
//! memory.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use tokio::sync::oneshot;

use self::queue::{Place, Queue};
use crate::rate_limit::Source;

mod queue;

/// How many may wait for each check that runs, in each of the two lines: some three seconds' worth.
/// Those who came later would have given up by the time it is their turn.
const WAITING_PER_RUNNING: usize = 128;
/// Beyond that many cores their memory is what counts.
const MAX_RUNNING: usize = 16;

/// The checks that run and those that wait; clones share them.
#[derive(Debug, Clone)]
pub(super) struct PasswordWork(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most_running: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    running: usize,
    queue: Queue,
}

/// Leave to check one password, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn(PasswordWork);

/// The line is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Busy;

impl PasswordWork {
    /// For this machine, or what a container may use of it.
    pub(super) fn for_this_machine() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let running = cores.min(MAX_RUNNING);
        Self::new(running, running * WAITING_PER_RUNNING)
    }

    fn new(most_running: usize, places_in_each_line: usize) -> Self {
        Self(Arc::new(Shared {
            most_running,
            state: Mutex::new(State {
                running: 0,
                queue: Queue::new(places_in_each_line),
            }),
        }))
    }

    /// Waits for a turn. `is_known` where the account has logged in from this client before.
    pub(super) async fn turn(&self, client: IpAddr, is_known: bool) -> Result<Turn, Busy> {
        let Some(mut waiting) = self.enqueue(Source::network(client), is_known)? else {
            return Ok(Turn(self.clone()));
        };
        (&mut waiting.granted).await.map_err(|_| Busy)?;
        waiting.taken = true;
        Ok(Turn(self.clone()))
    }

    /// `None` where nobody has to wait.
    fn enqueue(&self, network: Source, is_known: bool) -> Result<Option<Waiting>, Busy> {
        let mut state = self.state();
        if state.running < self.0.most_running {
            state.running += 1;
            return Ok(None);
        }
        let (grant, granted) = oneshot::channel();
        let place = state.queue.push(network, is_known, grant).ok_or(Busy)?;
        Ok(Some(Waiting {
            work: self.clone(),
            place,
            granted,
            taken: false,
        }))
    }

    /// Hands a turn that has ended to the next in line.
    fn pass_on(&self, state: &mut State) {
        while let Some(next) = state.queue.pop() {
            if next.send(()).is_ok() {
                return;
            }
        }
        state.running -= 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.pass_on(&mut self.0.state());
    }
}

/// A place in a line, given back when its client hangs up.
#[derive(Debug)]
struct Waiting {
    work: PasswordWork,
    place: Place,
    granted: oneshot::Receiver<()>,
    taken: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        // Turns are granted under the same lock: it is either still in line, or granted for good.
        let mut state = self.work.state();
        if !state.queue.remove(&self.place) && self.granted.try_recv().is_ok() {
            self.work.pass_on(&mut state);
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

    type Waits = Pin<Box<dyn Future<Output = Result<Turn, Busy>>>>;

    /// An address in the `n`th network.
    fn network(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, n, 1).into()
    }

    fn waits(work: &PasswordWork, client: IpAddr, is_known: bool) -> Waits {
        let work = work.clone();
        let mut turn: Waits = Box::pin(async move { work.turn(client, is_known).await });
        assert!((&mut turn).now_or_never().is_none(), "it waits");
        turn
    }

    /// Takes the turn that was granted in this line.
    fn next_of(line: &mut Vec<Waits>) -> Option<Turn> {
        let (at, turn) = line.iter_mut().enumerate().find_map(|(at, turn)| {
            let turn = turn.now_or_never()?;
            Some((at, turn.ok()?))
        })?;
        drop(line.remove(at));
        Some(turn)
    }

    fn is_refused(turn: &mut Waits) -> bool {
        matches!(turn.now_or_never(), Some(Err(Busy)))
    }

    #[tokio::test]
    async fn some_run_some_wait_and_the_rest_are_sent_away() {
        let work = PasswordWork::new(2, 1);
        let first = work.turn(HOME, false).now_or_never().unwrap().unwrap();
        let _second = work.turn(HOME, false).now_or_never().unwrap().unwrap();
        let mut third = waits(&work, HOME, false);
        let fourth = work.turn(HOME, false).now_or_never().unwrap();
        assert_eq!(fourth.err(), Some(Busy));

        drop(first);
        let third = (&mut third).now_or_never().unwrap();
        assert!(third.is_ok(), "the first one's end is its turn");
    }

    #[tokio::test]
    async fn who_hangs_up_while_waiting_frees_his_place() {
        let work = PasswordWork::new(1, 1);
        let running = work.turn(HOME, false).await.unwrap();
        let waiting = waits(&work, HOME, false);
        assert!(work.turn(HOME, false).now_or_never().unwrap().is_err());
        drop(waiting);
        let granted = waits(&work, HOME, false);
        drop(running);
        // Its turn has come, and nobody takes it.
        drop(granted);
        let next = work.turn(HOME, false).now_or_never();
        assert!(next.unwrap().is_ok(), "the turn was lost");
    }

    #[tokio::test]
    async fn networks_take_turns_however_many_wait_from_one() {
        let work = PasswordWork::new(1, 100);
        let running = work.turn(network(0), false).await.unwrap();
        let mut crowd: Vec<_> = (0..50).map(|_| waits(&work, network(1), false)).collect();
        let mut single = waits(&work, network(2), false);
        drop(running);
        let first = (&mut crowd[0]).now_or_never().unwrap().unwrap();
        drop(first);
        let turn = (&mut single).now_or_never();
        assert!(matches!(turn, Some(Ok(_))), "one of the crowd is enough");
    }

    #[tokio::test]
    async fn a_full_line_has_a_place_for_a_network_that_has_fewer() {
        let work = PasswordWork::new(1, 8);
        let _running = work.turn(network(0), false).await.unwrap();
        let mut crowd: Vec<_> = (0..8).map(|_| waits(&work, network(1), false)).collect();
        let mut others: Vec<_> = (2..6).map(|n| waits(&work, network(n), false)).collect();
        let refused: Vec<_> = crowd.iter_mut().map(is_refused).collect();
        // The last ones to come make room.
        let expected = [false, false, false, false, true, true, true, true];
        assert_eq!(refused, expected);
        assert!(!others.iter_mut().any(is_refused));
        let more = work.turn(network(1), false).now_or_never().unwrap();
        assert_eq!(more.err(), Some(Busy), "it has more than its share");
    }

    #[tokio::test]
    async fn who_has_logged_in_before_has_half_of_the_places_and_of_the_turns() {
        let work = PasswordWork::new(1, 100);
        let mut running = work.turn(network(0), false).await.unwrap();
        let mut strangers: Vec<_> = (0..100).map(|n| waits(&work, network(n), false)).collect();
        let stranger = work.turn(network(200), false).now_or_never().unwrap();
        assert_eq!(stranger.err(), Some(Busy), "as many networks as places");
        let mut known: Vec<_> = (0..3).map(|_| waits(&work, HOME, true)).collect();
        let mut turns = Vec::new();
        for _ in 0..6 {
            drop(running);
            let of_known = next_of(&mut known);
            turns.push(of_known.is_some());
            running = of_known.unwrap_or_else(|| next_of(&mut strangers).unwrap());
        }
        assert_eq!(turns, [true, false, true, false, true, false]);
    }
}
