//! The end of the process: not ready, keep accepting for a while, stop accepting, let requests in
//! flight finish, exit. A signal starts it, or the end of a background task: without its reload or
//! key refresh a process looks healthy, and has to be restarted.
//!
//! Pingora's own graceful stop closes the listeners at once and then sleeps for a fixed time.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use postern_process::exit::ExitError;
use postern_process::logs::subscriber::LogFormat;
use postern_process::signals::{Termination, Terminations, signal_error};
use postern_process::supervisor::FirstFailure;
use postern_transport::admin::health::Condition;
use postern_transport::drain::DrainTrigger;
use postern_transport::net::listener::{Port, announce};
use postern_transport::traces;

use crate::telemetry::metrics::Metrics;

/// Waits for the signal and carries out the shutdown.
#[derive(Debug)]
pub(crate) struct GracefulStop {
    /// The addresses to print once the handlers of signals are there.
    pub(crate) addresses: Vec<(Port, SocketAddr)>,
    pub(crate) log_format: LogFormat,
    /// Time in which routers notice that the sidecar is not ready.
    pub(crate) lame_duck: Duration,
    /// Time after which requests in flight are cut off.
    pub(crate) drain_timeout: Duration,
    pub(crate) drain: DrainTrigger,
    /// The readiness condition that is lost first.
    pub(crate) serving: Condition,
    pub(crate) metrics: Metrics,
    pub(crate) ends: FirstFailure,
    /// The error that the process ends with, unless a signal ends it.
    pub(crate) failure: Arc<OnceLock<ExitError>>,
}

impl GracefulStop {
    async fn drain(&self, lame_duck: Duration) {
        // Readiness is lost first: routers need time to notice it while requests are still accepted.
        self.serving.set_not_ready("stopping");
        tracing::info!(
            in_flight = self.metrics.requests_in_flight.get(),
            connections = self.metrics.connections.get(),
            max_seconds = self.drain_timeout.as_secs(),
            "draining: a second signal ends at once"
        );
        // The time since a `drain` command counts as lame-duck time.
        tokio::time::sleep(lame_duck.saturating_sub(self.drain.begin().elapsed())).await;
        if self.drain.close(self.drain_timeout).await {
            tracing::info!("drained: every request is complete, every connection is closed");
        } else {
            tracing::warn!(
                in_flight = self.metrics.requests_in_flight.get(),
                "--drain-timeout is over: closing connections with requests in flight"
            );
        }
        // The last spans are those of requests that have just ended.
        traces::flush().await;
    }
}

#[async_trait]
impl ShutdownSignalWatch for GracefulStop {
    async fn recv(&self) -> ShutdownSignal {
        let mut signals = match Terminations::install() {
            Ok(signals) => signals,
            Err(error) => {
                let _ = self.failure.set(signal_error(error));
                return ShutdownSignal::FastShutdown;
            }
        };
        // After the handlers are installed: a reader of the addresses may end the process at once.
        for (port, address) in &self.addresses {
            announce(*port, *address, self.log_format);
        }
        let lame_duck = tokio::select! {
            // `biased`: once a signal is here, the end of a background task is a part of the stop.
            biased;
            first = signals.next() => match first {
                Termination::Requested => self.lame_duck,
                // No router sends requests to a process at a terminal.
                Termination::Interrupted => Duration::ZERO,
            },
            failure = self.ends.first() => {
                tracing::error!(%failure, "the sidecar stops and has to be restarted");
                let _ = self.failure.set(failure);
                // Requests in flight finish, and routers need time to notice.
                self.lame_duck
            }
        };
        tokio::select! {
            () = self.drain(lame_duck) => {}
            _ = signals.next() => tracing::warn!("second signal: ending at once"),
        }
        ShutdownSignal::FastShutdown
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::panic, reason = "work that panics is what this is about")]
    use std::convert::Infallible;
    use std::sync::mpsc::channel;
    use std::thread;

    use pingora::server::configuration::ServerConf;
    use pingora::server::{RunArgs, Server};
    use postern_process::supervisor::supervisor;
    use postern_transport::admin::health::Health;
    use postern_transport::drain::Phase;

    use super::*;
    use crate::server::background::supervised;
    use crate::telemetry::metrics::TokenCacheCounters;

    fn stop(drain_timeout: Duration, ends: FirstFailure) -> (GracefulStop, Health) {
        let health = Health::new();
        health.set_started();
        let serving = health.condition("serving", "starting");
        serving.set_ready();
        let stop = GracefulStop {
            addresses: Vec::new(),
            log_format: LogFormat::Text,
            lame_duck: Duration::ZERO,
            drain_timeout,
            drain: DrainTrigger::default(),
            serving,
            metrics: Metrics::new(&TokenCacheCounters::default()).0,
            ends,
            failure: Arc::default(),
        };
        (stop, health)
    }

    #[tokio::test]
    async fn open_connections_are_closed_at_the_drain_timeout() {
        let (stop, _) = stop(Duration::from_millis(1), supervisor().1);
        let mut connection = stop.drain.watcher();
        stop.drain(stop.lame_duck).await;
        connection.reached(Phase::Closing).await;
    }

    async fn defective() -> Result<Infallible, String> {
        tokio::task::yield_now().await;
        panic!("oh")
    }

    #[test]
    fn a_panicking_task_ends_the_server_with_an_error() {
        let (background, ends) = supervisor();
        let (stop, health) = stop(Duration::from_secs(3600), ends);
        let failure = Arc::clone(&stop.failure);
        let mut server = Server::new_with_opt_and_conf(None, ServerConf::default());
        server.add_service(supervised("reload", defective(), &background));
        let (sink, ended) = channel();
        thread::spawn(move || {
            server.run(RunArgs {
                shutdown_signal: Box::new(stop),
            });
            let _ = sink.send(());
        });
        assert!(ended.recv_timeout(Duration::from_secs(30)).is_ok());
        assert!(!health.is_ready());
        assert_eq!(failure.get().map(ExitError::code), Some(70));
        let line = failure.get().map(ToString::to_string);
        let line = line.unwrap_or_default();
        assert!(line.starts_with("reload has ended: "), "{line}");
    }
}
