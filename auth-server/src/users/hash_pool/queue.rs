//! Two lines, of clients that have logged in before and of all others, which take turns. Within a line
//! the networks take turns, so that nobody waits for more than one check of each other network.

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot::Sender;

use crate::rate_limit::Source;

/// Tells a waiting client that it is its turn; it is refused where this is dropped.
type Grant = Sender<()>;

#[derive(Debug)]
pub(super) struct Queue {
    known: Line,
    strangers: Line,
    known_is_next: bool,
    tickets: u64,
}

/// Where somebody waits.
#[derive(Debug)]
pub(super) struct Place {
    network: Source,
    is_known: bool,
    ticket: u64,
}

#[derive(Debug)]
struct Line {
    /// In the order of their next turns; each has somebody waiting.
    networks: VecDeque<Source>,
    waiting: HashMap<Source, VecDeque<(u64, Grant)>>,
    length: usize,
    places: usize,
}

impl Queue {
    pub(super) fn new(places_in_each_line: usize) -> Self {
        Self {
            known: Line::new(places_in_each_line),
            strangers: Line::new(places_in_each_line),
            known_is_next: true,
            tickets: 0,
        }
    }

    /// `None` where there is no place.
    pub(super) fn push(&mut self, network: Source, is_known: bool, grant: Grant) -> Option<Place> {
        self.tickets += 1;
        let ticket = self.tickets;
        let line = self.line(is_known);
        let has_place = line.length < line.places || line.make_room_for(network);
        has_place.then(|| {
            line.push(network, ticket, grant);
            Place {
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

    /// Gives up a place; false where its turn had come, or it was given to another.
    pub(super) fn remove(&mut self, place: &Place) -> bool {
        self.line(place.is_known).remove(place)
    }

    fn line(&mut self, is_known: bool) -> &mut Line {
        if is_known {
            &mut self.known
        } else {
            &mut self.strangers
        }
    }
}

impl Line {
    fn new(places: usize) -> Self {
        Self {
            networks: VecDeque::new(),
            waiting: HashMap::new(),
            length: 0,
            places,
        }
    }

    fn push(&mut self, network: Source, ticket: u64, grant: Grant) {
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

    /// Refuses the last to come of the network that takes most places, unless `network` would then take
    /// as many itself.
    fn make_room_for(&mut self, network: Source) -> bool {
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

    fn remove(&mut self, place: &Place) -> bool {
        self.take_out(place.network, place.ticket)
    }

    fn take_out(&mut self, network: Source, ticket: u64) -> bool {
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
