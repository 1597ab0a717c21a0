//! The accept loop for clients, on a socket that is bound before Pingora starts.
//!
//! Pingora's own loop accepts without a bound, and sleeps a second once no descriptor is free. It
//! does not report its port, and a failed bind leaves a process without a listener.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use postern_transport::drain::{DrainWatcher, Phase};

use crate::server::connections::ClientConnections;

/// Interval of the timer, shorter than every timeout of a request or of an idle connection.
const TICK: Duration = Duration::from_secs(1);

/// Keeps a timer armed that is due before all others. Otherwise each request without load wakes the
/// runtime with a system call, because its pooled connection gets a timeout.
async fn keep_timer_armed() -> Infallible {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
    }
}

/// Serves `clients` on `listener` until no more are to be accepted.
pub(crate) async fn serve(
    clients: ClientConnections,
    listener: TcpListener,
    mut drain: DrainWatcher,
) -> Result<(), String> {
    let listener =
        tokio::net::TcpListener::from_std(listener).map_err(|error| error.to_string())?;
    let accepting = Arc::new(clients).accept(listener, drain.clone());
    tokio::select! {
        // The listener is dropped with this end; open connections go on.
        () = drain.reached(Phase::Closing) => Ok(()),
        never = accepting => match never {},
        never = keep_timer_armed() => match never {},
    }
}
