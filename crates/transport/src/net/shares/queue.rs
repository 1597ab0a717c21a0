//! The queue of requests that wait for a permit, in turns: the second request of a holder comes after the
//! first requests of all others.

use std::collections::BTreeMap;

use super::Holder;

/// Max number of waiting requests, each of which is kept in memory.
const MAX_WAITING: usize = 512;

/// The turn, which is the number of the holder's requests before it, and the order of arrival.
pub(super) type Position = (usize, u64);

/// Waiting requests, with the signal for each of them.
#[derive(Debug)]
pub(super) struct Queue<T> {
    positions: BTreeMap<Position, (Holder, T)>,
    arrivals: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            positions: BTreeMap::new(),
            arrivals: 0,
        }
    }
}

impl<T> Queue<T> {
    /// Adds a request. `None` if the queue is full, unless its last request has a later turn, and gives way.
    pub(super) fn join(&mut self, holder: Holder, signal: T) -> Option<Position> {
        let turn = self
            .positions
            .values()
            .filter(|(it, _)| *it == holder)
            .count();
        // A holder with many requests gives way to one with fewer.
        if self.positions.len() == MAX_WAITING {
            self.positions
                .last_entry()
                .filter(|last| last.key().0 > turn)?
                .remove();
        }
        let position = (turn, self.arrivals);
        self.arrivals += 1;
        self.positions.insert(position, (holder, signal));
        Some(position)
    }

    /// Removes a request, unless it was removed before.
    pub(super) fn leave(&mut self, position: Position) {
        self.positions.remove(&position);
    }

    /// Removes the first request whose holder may take a permit.
    pub(super) fn next(&mut self, may_take: impl Fn(Holder) -> bool) -> Option<(Holder, T)> {
        let (&position, _) = self
            .positions
            .iter()
            .find(|(_, (holder, _))| may_take(*holder))?;
        self.positions.remove(&position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: usize) -> Holder {
        Holder::verified(None, &number.to_string())
    }

    fn all(mut queue: Queue<usize>) -> Vec<usize> {
        std::iter::from_fn(|| queue.next(|_| true).map(|(_, id)| id)).collect()
    }

    #[test]
    fn each_holder_has_its_turn_before_the_second_one_of_another() {
        let mut queue = Queue::default();
        for (id, holder) in [1, 1, 1, 2, 2, 3].into_iter().enumerate() {
            queue.join(user(holder), id);
        }
        assert!(queue.next(|_| false).is_none());
        assert_eq!(queue.next(|it| it == user(2)), Some((user(2), 3)));
        assert_eq!(all(queue), [0, 5, 1, 4, 2]);
    }

    #[test]
    fn a_full_queue_still_takes_first_requests_of_others() {
        let mut queue = Queue::default();
        let of_one = (0..MAX_WAITING).map(|id| queue.join(user(0), id));
        assert_eq!(of_one.flatten().count(), MAX_WAITING);
        assert_eq!(queue.join(user(0), 0), None);
        for number in 1..MAX_WAITING {
            assert!(queue.join(user(number), MAX_WAITING + number).is_some());
        }
        assert_eq!(queue.join(user(MAX_WAITING), 0), None);
        let ids = all(queue);
        assert_eq!(ids.len(), MAX_WAITING);
        assert!(ids.iter().skip(1).all(|id| *id > MAX_WAITING));
    }

    #[test]
    fn one_that_has_left_is_not_called() {
        let mut queue = Queue::default();
        let positions: Vec<_> = (0..4).filter_map(|id| queue.join(user(id), id)).collect();
        for position in [positions[1], positions[2], positions[1]] {
            queue.leave(position);
        }
        assert_eq!(all(queue), [0, 3]);
    }
}
