//! Two queues, for clients that have logged in before and for all others, served in turn. Within a
//! queue the networks take turns, so that each client waits for at most one check of each other
//! network.

use std::collections::{HashMap, VecDeque};

use runtime::net::client_prefix::ClientPrefix;
use tokio::sync::oneshot::Sender;

/// Grants a permit to a waiting client; dropping it rejects the client.
type Grant = Sender<()>;

#[derive(Debug)]
pub(super) struct Queue {
    known: FairQueue,
    unknown: FairQueue,
    known_is_next: bool,
    tickets: u64,
}

#[derive(Debug)]
pub(super) struct Position {
    network: ClientPrefix,
    is_known: bool,
    ticket: u64,
}

#[derive(Debug)]
struct FairQueue {
    /// In the order of their next turns; each has waiting clients.
    networks: VecDeque<ClientPrefix>,
    waiting: HashMap<ClientPrefix, VecDeque<(u64, Grant)>>,
    length: usize,
    capacity: usize,
}

impl Queue {
    pub(super) fn new(queue_length: usize) -> Self {
        Self {
            known: FairQueue::new(queue_length),
            unknown: FairQueue::new(queue_length),
            known_is_next: true,
            tickets: 0,
        }
    }

    /// Adds a waiting client; `None` if the queue is full.
    pub(super) fn push(
        &mut self,
        network: ClientPrefix,
        is_known: bool,
        grant: Grant,
    ) -> Option<Position> {
        self.tickets += 1;
        let ticket = self.tickets;
        let line = self.line(is_known);
        let has_room = line.length < line.capacity || line.make_room_for(network);
        has_room.then(|| {
            line.push(network, ticket, grant);
            Position {
                network,
                is_known,
                ticket,
            }
        })
    }

    pub(super) fn pop(&mut self) -> Option<Grant> {
        let first = self.known_is_next;
        self.known_is_next = !first;
        let next = self.line(first).pop();
        next.or_else(|| self.line(!first).pop())
    }

    /// Gives up a position; false if it was granted or evicted already.
    pub(super) fn remove(&mut self, position: &Position) -> bool {
        self.line(position.is_known).remove(position)
    }

    fn line(&mut self, is_known: bool) -> &mut FairQueue {
        if is_known {
            &mut self.known
        } else {
            &mut self.unknown
        }
    }
}

impl FairQueue {
    fn new(capacity: usize) -> Self {
        Self {
            networks: VecDeque::new(),
            waiting: HashMap::new(),
            length: 0,
            capacity,
        }
    }

    fn push(&mut self, network: ClientPrefix, ticket: u64, grant: Grant) {
        let here = self.waiting.entry(network).or_default();
        if here.is_empty() {
            self.networks.push_back(network);
        }
        here.push_back((ticket, grant));
        self.length += 1;
    }

    fn pop(&mut self) -> Option<Grant> {
        let network = self.networks.pop_front()?;
        let here = self.waiting.get_mut(&network)?;
        let (_, grant) = here.pop_front()?;
        self.length -= 1;
        if here.is_empty() {
            self.waiting.remove(&network);
        } else {
            self.networks.push_back(network);
        }
        Some(grant)
    }

    /// Evicts the last of the network with most positions, unless `network` would then have as
    /// many.
    fn make_room_for(&mut self, network: ClientPrefix) -> bool {
        let own = self.waiting.get(&network).map_or(0, VecDeque::len);
        let largest = self.waiting.iter().max_by_key(|(_, here)| here.len());
        let Some((&largest, here)) = largest.filter(|(_, here)| here.len() > own + 1) else {
            return false;
        };
        let Some(&(ticket, _)) = here.back() else {
            return false;
        };
        self.take_out(largest, ticket)
    }

    fn remove(&mut self, position: &Position) -> bool {
        self.take_out(position.network, position.ticket)
    }

    fn take_out(&mut self, network: ClientPrefix, ticket: u64) -> bool {
        let Some(here) = self.waiting.get_mut(&network) else {
            return false;
        };
        let Some(at) = here.iter().position(|(of, _)| *of == ticket) else {
            return false;
        };
        here.remove(at);
        self.length -= 1;
        if here.is_empty() {
            self.waiting.remove(&network);
            self.networks.retain(|of| *of != network);
        }
        true
    }
}
