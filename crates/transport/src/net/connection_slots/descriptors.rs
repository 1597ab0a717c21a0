//! The file descriptors of the process, which all its ports share.

use std::cmp::Reverse;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Port;

static PORTS: Mutex<Vec<Weak<Port>>> = Mutex::new(Vec::new());

/// Adds a port, whose idle connections give way once no descriptor is free.
pub(super) fn share(port: &Arc<Port>) {
    let mut ports = PORTS.lock();
    ports.retain(|port| port.strong_count() > 0);
    ports.push(Arc::downgrade(port));
}

/// Closes connections without a request in flight, on the port that has most: without a free descriptor no
/// port accepts connections.
pub(crate) fn make_room() {
    // The ports are collected first: no port is locked under the lock of the list.
    let mut ports: Vec<_> = PORTS.lock().iter().filter_map(Weak::upgrade).collect();
    ports.sort_by_key(|port| Reverse(port.slots.lock().taken));
    for port in ports {
        if port.makes_room() {
            return;
        }
    }
}
