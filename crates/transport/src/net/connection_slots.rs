//! Slots of connections. A full port closes a connection without a request in flight for a new one; it closes
//! one of the client that holds most. So connections that are only held keep no other client out.

mod activity;
mod descriptors;
mod queues;

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Notify, oneshot, watch};

pub use self::activity::{Activity, OpenStream};
pub(crate) use self::descriptors::make_room;
use self::queues::{Client, Queues, Wait};
use super::client_prefix::ClientPrefix;
use super::shares::exceeds_its_share;
use postern_process::logs::once_a_minute::OnceAMinute;

/// Max number of connections beside the limit: connections that are being closed for new ones, and the new
/// one that waits for their end.
pub const MAX_BESIDE: usize = MAX_LEAVING + 1;
/// Max number of connections that are being closed at a time.
const MAX_LEAVING: usize = 16;
/// Connections that one client may hold on a large port before it gives way first: a browser opens six.
const MAX_FAIR_SHARE: usize = 8;
/// Number of clients with a fair share each that fill a port.
const MANY_CLIENTS: usize = 64;
/// Time in which the runtime certainly notices a request that has arrived: a timer ends only after
/// it has read the events of all sockets.
const NOTICE: Duration = Duration::from_millis(1);
/// Wait for a client that was sent a GOAWAY: it closes by itself, and loses no request.
const GOODBYE: Duration = Duration::from_secs(1);

/// The connections of one port, or of one kind of peers. Clones share them.
#[derive(Debug, Clone)]
pub struct ConnectionSlots(Arc<Port>);

#[derive(Debug)]
struct Port {
    /// The name of the port in the log.
    name: &'static str,
    max: usize,
    began: Instant,
    evictions: Counter,
    slots: Mutex<Slots>,
    /// Signals the end of a connection that is being closed.
    left: Notify,
    /// True while a newcomer waits for the end of a connection.
    pressed: watch::Sender<bool>,
}

#[derive(Debug)]
struct Slots {
    next_id: u64,
    /// Connections without those that are being closed.
    taken: usize,
    leaving: usize,
    connections: HashMap<u64, Connection>,
    queues: Queues,
    /// The queues of proxies, whose connections stand for many clients.
    proxies: Queues,
    /// Time of the last line: a client with too many connections opens them again and again.
    eviction_logged: OnceAMinute,
    rejection_logged: OnceAMinute,
}

#[derive(Debug)]
struct Connection {
    peer: IpAddr,
    client: Client,
    is_proxy: bool,
    activity: Activity,
    /// The wait by which the connection is queued; a new wait may have begun since.
    queued: Option<Wait>,
    /// Signals the connection to close; `None` once it was signalled.
    evict: Option<oneshot::Sender<()>>,
}

/// The slot of a connection, which is free again once it is dropped.
#[derive(Debug)]
pub struct Slot {
    port: Arc<Port>,
    id: u64,
    activity: Activity,
    evicted: oneshot::Receiver<()>,
}

impl ConnectionSlots {
    /// Returns `max` free slots.
    #[must_use]
    pub fn new(port: &'static str, max: usize) -> Self {
        Self::counting(port, max, Counter::default())
    }

    /// Returns slots that count the connections which are closed for new ones.
    #[must_use]
    pub fn counting(port: &'static str, max: usize, evictions: Counter) -> Self {
        let fair_share = (max / MANY_CLIENTS).clamp(1, MAX_FAIR_SHARE);
        let port = Arc::new(Port {
            name: port,
            max,
            began: Instant::now(),
            evictions,
            slots: Mutex::new(Slots {
                next_id: 0,
                taken: 0,
                leaving: 0,
                connections: HashMap::new(),
                queues: Queues::new(fair_share),
                proxies: Queues::new(fair_share),
                eviction_logged: OnceAMinute::default(),
                rejection_logged: OnceAMinute::default(),
            }),
            left: Notify::new(),
            pressed: watch::Sender::default(),
        });
        descriptors::share(&port);
        Self(port)
    }

    /// Takes a slot for a connection of `peer`; `is_proxy` if the peer stands for many clients. `None` if all
    /// other connections have requests in flight, or the peer holds its share of the slots. One newcomer
    /// waits at a time: [`super::listener::accept`] takes the next one after it.
    pub async fn take(&self, peer: IpAddr, is_proxy: bool) -> Option<Slot> {
        let port = &self.0;
        loop {
            if let Ok(slot) = Port::take(port, peer, is_proxy) {
                // No newcomer waits any more: connections that say goodbye have their time.
                port.pressed.send_if_modified(std::mem::take);
                return slot;
            }
            // Signalled before the wait: it cuts short the goodbye of connections that are leaving.
            port.pressed.send_replace(true);
            // `notify_one` leaves a permit, so an end before this line is not missed.
            port.left.notified().await;
        }
    }
}

/// Too many connections are being closed at the moment.
struct WouldWait;

impl Port {
    /// Returns the milliseconds since the start of the port.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn take(port: &Arc<Self>, peer: IpAddr, is_proxy: bool) -> Result<Option<Slot>, WouldWait> {
        let now = port.now();
        let client = ClientPrefix::client(peer).to_bytes();
        let mut slots = port.slots.lock();
        // A proxy has no share of its own: it stands for many clients.
        let holds = if is_proxy {
            0
        } else {
            slots.queues.held(client)
        };
        if !slots.takes_another(port, holds, now)? {
            slots.log_rejection(port, peer);
            return Ok(None);
        }
        let id = slots.next_id;
        slots.next_id += 1;
        let activity = Activity::new(port, id, now);
        let (evict, evicted) = oneshot::channel();
        let connection = Connection {
            peer,
            client,
            is_proxy,
            activity: activity.clone(),
            queued: None,
            evict: Some(evict),
        };
        slots.taken += 1;
        slots.queues_of(is_proxy).add(client);
        slots.connections.insert(id, connection);
        slots.enqueue(id);
        drop(slots);
        Ok(Some(Slot {
            port: Arc::clone(port),
            id,
            activity,
            evicted,
        }))
    }

    /// Signals as many connections to close as may leave at a time; returns false if none can.
    fn makes_room(&self) -> bool {
        let now = self.now();
        let mut slots = self.slots.lock();
        // An eviction frees its descriptor only at the connection's end, so evict several at once.
        while slots.leaving < MAX_LEAVING && slots.evict(self, 0, now) {}
        // Goodbyes are cut short as well: descriptors are missing now.
        self.pressed.send_replace(true);
        slots.leaving > 0
    }

    /// Queues a connection that was busy when the port polled it, and now waits.
    fn waits_again(&self, id: u64) {
        self.slots.lock().enqueue(id);
    }
}

impl Slots {
    const fn queues_of(&mut self, is_proxy: bool) -> &mut Queues {
        if is_proxy {
            &mut self.proxies
        } else {
            &mut self.queues
        }
    }

    /// Returns true if a client that holds so many connections gets one more, if need be in place of another one.
    fn takes_another(&mut self, port: &Port, holds: usize, now: u64) -> Result<bool, WouldWait> {
        let free = port.max.saturating_sub(self.taken);
        if free > 0 && !exceeds_its_share(holds, holds + 1, free - 1) {
            return Ok(true);
        }
        // Leaving connections may become busy, and take their slots back. So a newcomer waits for an end if
        // its client exceeds its share already, or if half of the free slots may be taken back.
        let may_exceed = exceeds_its_share(holds, holds, free) || self.leaving >= free / 2;
        let waits = free > 0 && may_exceed;
        let has_room = self.taken + self.leaving < port.max + MAX_LEAVING;
        if (waits || !has_room) && self.leaving > 0 {
            return Err(WouldWait);
        }
        let is_evicted = has_room && self.evict(port, holds, now);
        // A connection was evicted for this newcomer, which now waits for its end.
        if is_evicted && waits {
            return Err(WouldWait);
        }
        Ok(is_evicted)
    }

    /// Queues a connection, unless it is busy or being closed.
    fn enqueue(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        // Queued already, or being closed.
        if connection.queued.is_some() || connection.evict.is_none() {
            return;
        }
        // `None` for a busy connection, which reports its next wait by itself.
        connection.queued = connection.activity.wait();
        let &mut Connection {
            client,
            is_proxy,
            queued,
            ..
        } = connection;
        if let Some(wait) = queued {
            self.queues_of(is_proxy).enqueue(client, wait);
        }
    }

    fn dequeue(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if let Some(wait) = connection.queued.take() {
            let client = connection.client;
            let is_proxy = connection.is_proxy;
            self.queues_of(is_proxy).dequeue(client, wait);
        }
    }

    /// Signals the next connection to close; returns false without another connection.
    fn evict(&mut self, port: &Port, newcomer_holds: usize, now: u64) -> bool {
        // Proxies last: each of their connections serves many clients.
        for is_proxy in [false, true] {
            while let Some(wait) = self.queues_of(is_proxy).first(newcomer_holds, now) {
                self.dequeue(wait.id);
                // The connection may have become busy, or begun a new wait: another one may be first then.
                self.enqueue(wait.id);
                let Some(connection) = self.connections.get_mut(&wait.id) else {
                    continue;
                };
                if connection.queued != Some(wait) {
                    continue;
                }
                if let Some(evict) = connection.evict.take() {
                    // The send cannot fail: the receiver lives until `free` has removed the connection.
                    let _ = evict.send(());
                }
                let client = connection.client;
                let peer = connection.peer;
                // The `enqueue` above has put the connection back into the queue.
                self.dequeue(wait.id);
                // The connection counts as leaving until `leaves` or `free` corrects that.
                self.queues_of(is_proxy).remove(client);
                self.taken -= 1;
                self.leaving += 1;
                port.evictions.inc();
                if self.eviction_logged.is_due(Instant::now()) {
                    tracing::warn!(
                        %peer,
                        "{}: too many connections; an old one of this peer is closed",
                        port.name
                    );
                }
                return true;
            }
        }
        false
    }

    fn log_rejection(&mut self, port: &Port, peer: IpAddr) {
        if self.rejection_logged.is_due(Instant::now()) {
            tracing::warn!(
                %peer,
                "{}: max of {} connections reached, with requests in flight",
                port.name,
                port.max
            );
        }
    }

    /// Lets a connection close; a busy one stays, with a new channel.
    fn leaves(&mut self, id: u64) -> Result<(), oneshot::Receiver<()>> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        // Idle still: the connection closes, and `free` removes it.
        if !connection.activity.is_busy() {
            return Ok(());
        }
        // A request has arrived: the connection takes its slot back, even above the limit.
        let (evict, evicted) = oneshot::channel();
        connection.evict = Some(evict);
        let (client, is_proxy) = (connection.client, connection.is_proxy);
        self.queues_of(is_proxy).add(client);
        self.taken += 1;
        self.leaving -= 1;
        self.enqueue(id);
        Err(evicted)
    }

    fn free(&mut self, id: u64) {
        self.dequeue(id);
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        // A connection without its channel was evicted, and has left the queue then.
        if connection.evict.is_some() {
            self.queues_of(connection.is_proxy)
                .remove(connection.client);
            self.taken -= 1;
        } else {
            self.leaving -= 1;
        }
    }
}

impl Slot {
    /// Returns the activity that the tasks of the connection publish.
    #[must_use]
    pub const fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Serves a connection to its end, or until it gives way without a request in flight. `goodbye` first
    /// sends a GOAWAY on a connection of HTTP/2.
    pub async fn serve(
        mut self,
        mut connection: Pin<&mut impl Future<Output = ()>>,
        goodbye: impl Fn(),
    ) {
        loop {
            tokio::select! {
                // `biased`: the end of the connection makes an eviction needless.
                biased;
                () = connection.as_mut() => return,
                _ = &mut self.evicted => {}
            }
            // Boxed: few connections ever give way.
            if Box::pin(self.ends_by_itself(connection.as_mut(), &goodbye)).await || self.leaves() {
                return;
            }
        }
    }

    /// Serves a connection that gives way for another moment; returns false if it has not ended then.
    async fn ends_by_itself(
        &self,
        mut connection: Pin<&mut impl Future<Output = ()>>,
        goodbye: &impl Fn(),
    ) -> bool {
        tokio::select! {
            biased;
            () = connection.as_mut() => return true,
            // A request that has arrived already is noticed within this time, and then keeps the connection.
            () = tokio::time::sleep(NOTICE) => {}
        }
        // Only HTTP/2 has a goodbye; an idle connection of HTTP/1.1 just closes.
        if !self.activity.is_http_2() || self.activity.is_busy() {
            return false;
        }
        goodbye();
        let mut pressed = self.port.pressed.subscribe();
        tokio::select! {
            // `biased`: the connection is polled first, which sends the GOAWAY.
            biased;
            () = connection => true,
            _ = pressed.wait_for(|is_pressed| *is_pressed) => false,
            () = tokio::time::sleep(GOODBYE) => false,
        }
    }

    /// Returns false for a connection with a request in flight, which stays.
    fn leaves(&mut self) -> bool {
        let left = self.port.slots.lock().leaves(self.id);
        if let Err(evicted) = left {
            self.evicted = evicted;
            // A newcomer may wait for the end of this connection, which stays.
            self.port.left.notify_one();
            return false;
        }
        true
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Freed before the signal: the newcomer counts the slots at once.
        self.port.slots.lock().free(self.id);
        self.port.left.notify_one();
    }
}

#[cfg(test)]
mod tests;
