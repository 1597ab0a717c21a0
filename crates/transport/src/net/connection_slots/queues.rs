//! The order in which waiting connections give way.

use std::collections::{BTreeSet, HashMap};

/// Milliseconds in which a handshake or a head that has begun may be completed: only later it gives way
/// before others. Otherwise a few connections that send nothing would end every new handshake.
const FIRST_SECOND: u64 = 1000;

/// The bytes of a [`super::ClientPrefix`].
pub(super) type Client = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitsFor {
    /// The rest of a handshake or a head.
    Rest,
    /// A request: the connection is silent since its start, or since its last request.
    Request,
}

/// The present wait of a connection. Waits are ordered by their fields: by the start first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wait {
    /// The start of the wait, in milliseconds since the start of the port.
    pub(super) since: u64,
    pub(super) id: u64,
    pub(super) reason: WaitsFor,
}

impl Wait {
    const fn is_older(&self, age: u64, now: u64) -> bool {
        now.saturating_sub(self.since) >= age
    }
}

/// Waits by their start.
#[derive(Debug, Default)]
struct Queue {
    rest: BTreeSet<Wait>,
    request: BTreeSet<Wait>,
}

impl Queue {
    fn waiting_for(&mut self, reason: WaitsFor) -> &mut BTreeSet<Wait> {
        match reason {
            WaitsFor::Rest => &mut self.rest,
            WaitsFor::Request => &mut self.request,
        }
    }

    fn insert(&mut self, wait: Wait) {
        self.waiting_for(wait.reason).insert(wait);
    }

    fn remove(&mut self, wait: Wait) {
        self.waiting_for(wait.reason).remove(&wait);
    }

    fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.request.is_empty()
    }

    fn first(&self, now: u64) -> Option<Wait> {
        let rest = self.rest.first().copied();
        // An overdue handshake or head first, then the longest silence, then a young handshake or head.
        match rest {
            Some(rest) if rest.is_older(FIRST_SECOND, now) => Some(rest),
            _ => self.request.first().copied().or(rest),
        }
    }

    fn waits(&self) -> impl Iterator<Item = Wait> {
        self.rest.iter().chain(&self.request).copied()
    }
}

/// The connections of one client.
#[derive(Debug, Default)]
struct Group {
    held: usize,
    queue: Queue,
}

/// Connections of clients that give way alike.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Connections that one client may hold before its group is large.
    fair_share: usize,
    groups: HashMap<Client, Group>,
    /// The groups above the fair share with waiting connections, by size.
    large: BTreeSet<(usize, Client)>,
    /// The waits of all other groups.
    small: Queue,
}

impl Queues {
    pub(super) fn new(fair_share: usize) -> Self {
        Self {
            fair_share,
            ..Self::default()
        }
    }

    /// Returns the number of connections that a client holds.
    pub(super) fn held(&self, client: Client) -> usize {
        match self.groups.get(&client) {
            Some(group) => group.held,
            None => 0,
        }
    }

    pub(super) fn add(&mut self, client: Client) {
        self.change(client, |group| group.held += 1);
    }

    pub(super) fn remove(&mut self, client: Client) {
        self.change(client, |group| group.held = group.held.saturating_sub(1));
    }

    pub(super) fn enqueue(&mut self, client: Client, wait: Wait) {
        self.change(client, |group| group.queue.insert(wait));
    }

    pub(super) fn dequeue(&mut self, client: Client, wait: Wait) {
        self.change(client, |group| group.queue.remove(wait));
    }

    /// Returns the next wait to give way, of the client with most connections; without large groups, of all
    /// clients. `None` if the newcomer's client holds more than that.
    pub(super) fn first(&self, newcomer_holds: usize, now: u64) -> Option<Wait> {
        let (held, queue) = match self.large.last() {
            // A client above its fair share gives way first, the largest one before all.
            Some((held, client)) => (*held, &self.groups.get(client)?.queue),
            // Below the fair share all clients are one queue, by the age of the wait.
            None => (self.fair_share, &self.small),
        };
        if newcomer_holds > held {
            return None;
        }
        queue.first(now)
    }

    fn change(&mut self, client: Client, change: impl FnOnce(&mut Group)) {
        // The group is taken out and put back, because the change moves it.
        let mut group = self.groups.remove(&client).unwrap_or_default();
        if group.held > self.fair_share {
            self.large.remove(&(group.held, client));
        } else {
            for wait in group.queue.waits() {
                self.small.remove(wait);
            }
        }
        change(&mut group);
        // A group without a connection is dropped: the map would only grow.
        if group.held == 0 {
            return;
        }
        if group.held <= self.fair_share {
            for wait in group.queue.waits() {
                self.small.insert(wait);
            }
        } else if !group.queue.is_empty() {
            self.large.insert((group.held, client));
        }
        self.groups.insert(client, group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 60_000;

    fn client(number: u8) -> Client {
        [number; 16]
    }

    /// Waits of clients by number: a letter for the reason (`h` head, `k` kept), seconds of the wait.
    fn queues(fair_share: usize, waits: &[(u8, &str)]) -> Queues {
        let mut queues = Queues::new(fair_share);
        for (id, (number, wait)) in (0..).zip(waits) {
            queues.add(client(*number));
            let reason = match wait.as_bytes().first() {
                Some(b'h') => WaitsFor::Rest,
                Some(b'k') => WaitsFor::Request,
                _ => continue,
            };
            let seconds: u64 = wait
                .get(1..)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            let since = NOW - seconds * 1000;
            queues.enqueue(client(*number), Wait { reason, since, id });
        }
        queues
    }

    #[test]
    fn the_client_with_the_most_gives_way_with_its_longest_wait() {
        for (fair_share, waits, newcomer_holds, gone) in [
            (1, &[][..], 0, None),
            (1, &[(1, "k5")], 0, Some(0)),
            (1, &[(1, "busy")], 0, None),
            (1, &[(1, "k5"), (2, "k9")], 0, Some(1)),
            (1, &[(1, "k9"), (2, "k1"), (2, "k2")], 0, Some(2)),
            (1, &[(1, "k9"), (2, "busy"), (2, "busy")], 0, Some(0)),
            // None ends for a client that holds more.
            (1, &[(1, "k59"), (2, "busy"), (2, "busy")], 2, None),
            (1, &[(1, "k4"), (1, "k3"), (2, "k9"), (2, "k9")], 2, Some(2)),
            // Unfinished heads go first, but in their first second.
            (1, &[(1, "k9"), (1, "h2"), (1, "h3")], 0, Some(2)),
            (1, &[(1, "k9"), (1, "h0"), (1, "k3")], 0, Some(0)),
            (1, &[(1, "h0"), (1, "busy")], 0, Some(0)),
            // Few connections count alike.
            (1, &[(9, "k1"), (9, "k2"), (1, "h5"), (2, "h5")], 0, Some(1)),
            (2, &[(9, "k1"), (9, "k2"), (1, "h5"), (2, "h6")], 0, Some(3)),
            (2, &[(9, "k1"), (9, "k2"), (9, "k3"), (1, "h5")], 0, Some(2)),
            (2, &[(9, "k1"), (9, "k2")], 2, Some(1)),
            (2, &[(9, "k1"), (9, "k59")], 3, None),
        ] {
            let first = queues(fair_share, waits).first(newcomer_holds, NOW);
            assert_eq!(first.map(|wait| wait.id), gone, "{waits:?}");
        }
    }

    #[test]
    fn nothing_stays_of_clients_that_are_gone() {
        let mut queues = queues(2, &[(1, "k1"), (1, "h2"), (1, "k3"), (2, "busy")]);
        while let Some(wait) = queues.first(0, NOW) {
            queues.dequeue(client(1), wait);
            queues.remove(client(1));
        }
        queues.remove(client(2));
        assert!(queues.groups.is_empty() && queues.large.is_empty() && queues.small.is_empty());
    }
}
