//! The accept loop for clients, on a socket that is bound before Pingora starts, to its graceful end.
//!
//! Pingora's own loop accepts without a bound, and sleeps a second once no descriptor is free. It
//! does not report its port, and a failed bind leaves a process without a listener.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use pingora::server::ShutdownWatch;
use postern_process::supervisor::STOPPED_UNEXPECTEDLY;
use postern_transport::net::listener::LAST_REQUEST;

use crate::server::connections::ClientConnections;

/// Shorter than every timeout of a request or of an idle connection.
const TICK: Duration = Duration::from_secs(1);

/// Keeps a timer armed that is due before all others. Otherwise each request without load wakes the
/// runtime with a system call, because its pooled connection gets a timeout.
async fn keep_timer_armed() {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
    }
}

/// Serves `clients` on `listener` until `stop` turns true, and then closes their idle connections.
pub(crate) async fn serve(
    clients: ClientConnections,
    listener: TcpListener,
    stop: ShutdownWatch,
) -> Result<(), String> {
    let listener = tokio::net::TcpListener::from_std(listener);
    let listener = listener.map_err(|error| error.to_string())?;
    let closing = clients.requests.closing.clone();
    let accepting = Arc::new(clients).accept(listener, stop.clone());
    until_stopped(accepting, stop).await?;
    // The last request of a client that does not know of the stop arrives, and ends its connection.
    tokio::time::sleep(LAST_REQUEST).await;
    closing.cancel();
    Ok(())
}

/// Accepts until `stop` turns true; the end of its sender is an error.
async fn until_stopped(
    accepting: impl Future<Output = Infallible>,
    mut stop: ShutdownWatch,
) -> Result<(), String> {
    let stopped = tokio::select! {
        stopped = stop.wait_for(|is_stopped| *is_stopped) => stopped.is_ok(),
        never = accepting => match never {},
        () = keep_timer_armed() => false,
    };
    stopped
        .then_some(())
        .ok_or_else(|| STOPPED_UNEXPECTEDLY.to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::future::pending;
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use async_trait::async_trait;
    use pingora::server::configuration::ServerConf;
    use pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};
    use postern_process::supervisor::{FirstFailure, Supervisor, supervisor};
    use tokio::sync::watch;

    use super::*;
    use crate::background;

    /// Ends the server after the end of a task, and reports the task.
    struct UntilAnEnd {
        stop: Option<watch::Sender<bool>>,
        background: Supervisor,
        ends: FirstFailure,
        sink: Sender<String>,
    }

    #[async_trait]
    impl ShutdownSignalWatch for UntilAnEnd {
        async fn recv(&self) -> ShutdownSignal {
            if let Some(stop) = &self.stop {
                stop.send_replace(true);
                stop.closed().await;
                self.background.spawn_critical("the last", async {});
            }
            let _ = self.sink.send(self.ends.first().await.to_string());
            ShutdownSignal::FastShutdown
        }
    }

    /// Describes the end of the proxy: by a stop, or unexpected.
    fn end_of_proxy(is_stopped: bool) -> String {
        let stop = watch::Sender::new(false);
        let (background, ends) = supervisor();
        let proxy = until_stopped(pending(), stop.subscribe());
        let mut server = Server::new_with_opt_and_conf(None, ServerConf::default());
        server.add_service(background::until_stopped("proxy", proxy, &background));
        let (sink, printed) = channel();
        let shutdown_signal = Box::new(UntilAnEnd {
            // The loop also ends when the sender of the stop is gone.
            stop: is_stopped.then_some(stop),
            background,
            ends,
            sink,
        });
        thread::spawn(move || server.run(RunArgs { shutdown_signal }));
        printed.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    #[test]
    fn a_proxy_that_stops_accepting_ends_the_server() {
        assert_eq!(end_of_proxy(false), "proxy has ended: it stopped by itself");
        assert_eq!(
            end_of_proxy(true),
            "the last has ended: it stopped by itself"
        );
    }
}
