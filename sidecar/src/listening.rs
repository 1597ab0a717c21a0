//! Sockets that are bound before Pingora starts: telling their addresses, and serving on one.
//!
//! Pingora neither tells which port it got nor ends when it cannot bind: a failed bind panics in a
//! task and leaves a process without a listener.

use std::net::TcpListener;
use std::os::fd::IntoRawFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::Service;
use pingora::services::listening::Service as ListeningService;
use process::listener::announce;

/// The lines on standard output that say where the process listens.
///
/// The sockets are clones that go with the telling: a clone that stays would hold the port open
/// after the proxy has left it.
#[derive(Debug, Default)]
pub(crate) struct Announcement {
    lines: Mutex<Vec<(&'static str, TcpListener)>>,
}

impl Announcement {
    pub(crate) fn new(lines: Vec<(&'static str, TcpListener)>) -> Self {
        Self {
            lines: Mutex::new(lines),
        }
    }

    /// Prints the lines, once.
    pub(crate) fn tell(&self) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        for (prefix, listener) in lines.drain(..) {
            if let Err(failure) = announce(prefix, &listener) {
                tracing::error!(%failure, "an address cannot be announced");
            }
        }
    }
}

/// Shorter than every time-out of a request or of a connection that waits for one.
const TICK: Duration = Duration::from_secs(1);

/// Keeps a timer running that is due before all others. A runtime that waits for a later one, or for none,
/// is woken up when one is set, by a system call and a turn for nothing: without load that would be once
/// for each request, whose connection to the service goes back to the pool with a time-out.
async fn tick() {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
    }
}

/// Wraps Pingora's listening service.
pub(crate) struct BoundService<A> {
    service: ListeningService<A>,
    /// The key of Pingora's table of inherited sockets, which is where it looks first.
    address: String,
    /// Both are taken at the start.
    socket: Option<(TcpListener, ShutdownWatch)>,
}

impl<A> BoundService<A> {
    /// Serves `app` on `listener` until `stop` turns true.
    ///
    /// # Errors
    /// When the listener has no address.
    pub(crate) fn new(
        name: &str,
        app: A,
        listener: TcpListener,
        stop: ShutdownWatch,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?.to_string();
        let mut service = ListeningService::new(name.to_owned(), app);
        service.add_tcp(&address);
        Ok(Self {
            service,
            address,
            socket: Some((listener, stop)),
        })
    }
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> Service for BoundService<A> {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        _: ShutdownWatch,
        listeners_per_fd: usize,
    ) {
        let (Some(fds), Some((listener, stop))) = (fds, self.socket.take()) else {
            tracing::error!("Pingora started the proxy twice, or without a table of sockets");
            return;
        };
        fds.lock().add(self.address.clone(), listener.into_raw_fd());
        tokio::select! {
            () = self.service.start_service(Some(fds), stop, listeners_per_fd) => (),
            () = tick() => (),
        }
    }

    fn name(&self) -> &str {
        Service::name(&self.service)
    }
}
