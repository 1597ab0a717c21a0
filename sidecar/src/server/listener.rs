//! Sockets that are bound before Pingora starts, and the clients of one of them.
//!
//! Pingora does not report its port and does not end when it cannot bind: a failed bind panics in a
//! task and leaves a process without a listener.

use std::net::TcpListener;
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pingora::apps::ServerApp;
use pingora::listeners::{L4BufferSettings, ListenerConfig};
use pingora::server::{Fds, ShutdownWatch};
use pingora::services::Service;
use pingora::services::listening::Service as ListeningService;
use runtime::process::supervisor::STOPPED_UNEXPECTEDLY;

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

/// Serves `app` on `listener` until `stop` turns true.
pub(crate) async fn serve<A: ServerApp + Send + Sync + 'static>(
    app: A,
    listener: TcpListener,
    stop: ShutdownWatch,
) -> Result<(), String> {
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let address = address.to_string();
    let mut service = ListeningService::new("proxy".to_owned(), app);
    // Every reader has a buffer of its own; Pingora's would be 64 KiB for each connection.
    let buffers = L4BufferSettings::default().read(0);
    service.add_listener(ListenerConfig::tcp(&address).l4_buffer(buffers));
    // Pingora's table of inherited sockets, which it reads first.
    let mut inherited = Fds::new();
    inherited.add(address, listener.into_raw_fd());
    let inherited = Some(Arc::new(Mutex::new(inherited)));
    tokio::select! {
        () = service.start_service(inherited, stop.clone(), 1) => (),
        () = keep_timer_armed() => (),
    }
    let is_stopped = *stop.borrow();
    is_stopped
        .then_some(())
        .ok_or_else(|| STOPPED_UNEXPECTEDLY.to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use async_trait::async_trait;
    use pingora::protocols::Stream;
    use pingora::server::configuration::ServerConf;
    use pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};
    use runtime::net::listener::{Port, bind};
    use runtime::process::supervisor::{FirstFailure, Supervisor, supervisor};
    use tokio::sync::watch;

    use super::*;
    use crate::background::until_stopped;

    struct Silent;

    #[async_trait]
    impl ServerApp for Silent {
        async fn process_new(self: &Arc<Self>, _: Stream, _: &ShutdownWatch) -> Option<Stream> {
            None
        }
    }

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
        let listener = bind(Port::Public, "127.0.0.1:0".parse().unwrap()).unwrap();
        let stop = watch::Sender::new(false);
        let (background, ends) = supervisor();
        let proxy = serve(Silent, listener, stop.subscribe());
        let mut server = Server::new_with_opt_and_conf(None, ServerConf::default());
        server.add_service(until_stopped("proxy", proxy, &background));
        let (sink, printed) = channel();
        let shutdown_signal = Box::new(UntilAnEnd {
            // Pingora's loop also ends when the sender of the stop is gone.
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
