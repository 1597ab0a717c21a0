//! Keeps this server registered while it serves, and deregisters it first when it stops.
//!
//! The registry drops an instance that is not renewed for half a minute. An instance that it has lost by a
//! restart is registered again as a whole.

use std::sync::Arc;
use std::time::Duration;

use postern_process::supervisor::Supervisor;
use registry::{Instance, RegistryClient, RegistryError, RegistrySettings};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::keys::published::LiveKeys;
use crate::telemetry::audit;
use crate::telemetry::metrics::Metrics;

/// Pause between two renewals, as the registry expects them; it takes an instance for unhealthy
/// after three.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
/// Pause after a failure: a registry that restarts is to know this server soon.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Poll interval for the first key, which mostly is there at once.
const KEY_PAUSE: Duration = Duration::from_millis(100);
/// Orchestrators grant 10 to 30 seconds for the whole stop, and the registry drops a process that
/// has ended.
const DEREGISTRATION_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Registration {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Registration {
    /// Registers `own` once there is a key to serve, and renews the registration.
    pub(crate) fn start(
        settings: RegistrySettings,
        own: Instance,
        live_keys: Arc<LiveKeys>,
        metrics: Metrics,
        background: &Supervisor,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let worker = Worker {
            registry: settings.to_string(),
            client: RegistryClient::new(settings),
            own,
            live_keys,
            metrics,
            listed: None,
        };
        let task = background.spawn_critical_until_shutdown("the registration", async {
            worker.run(stopped).await;
            Ok(())
        });
        Self { stop, task }
    }

    /// Deregisters this server, in bounded time.
    pub(crate) async fn end(self) {
        let _ = self.stop.send(());
        let ending = tokio::time::timeout(DEREGISTRATION_TIMEOUT, self.task);
        if ending.await.is_err() {
            warn!("the registry did not confirm the deregistration in time");
        }
    }
}

struct Worker {
    /// The servers of the registry, for the log.
    registry: String,
    client: RegistryClient,
    own: Instance,
    live_keys: Arc<LiveKeys>,
    metrics: Metrics,
    /// True if the last attempt succeeded; logged when it changes; `None` until the first attempt has ended.
    listed: Option<bool>,
}

impl Worker {
    async fn run(mut self, stopped: oneshot::Receiver<()>) {
        tokio::select! {
            biased;
            _ = stopped => {}
            () = self.keep_listed() => {}
        }
        // A registration may have arrived even without a response; without a key none was sent.
        if self.live_keys.load().is_some() {
            self.withdraw().await;
        }
    }

    async fn keep_listed(&mut self) {
        while self.live_keys.load().is_none() {
            tokio::time::sleep(KEY_PAUSE).await;
        }
        loop {
            let listed = match self.listed {
                Some(true) => self.client.renew(&self.own).await,
                // An entry of this address may be from a former process, with that one's metadata.
                _ => self.client.register(&self.own).await,
            };
            let pause = if listed.is_ok() {
                RENEWAL_INTERVAL
            } else {
                RETRY_PAUSE
            };
            self.record(listed);
            tokio::time::sleep(pause).await;
        }
    }

    async fn withdraw(&mut self) {
        let (instance, registry) = (self.own.authority(), &self.registry);
        match self.client.deregister(&self.own).await {
            Ok(()) => {
                self.metrics.registration.registry_listed.set(0);
                audit::registration(audit::Registration::Withdrawn, &instance, registry);
            }
            Err(error) => warn!(instance, registry, %error, "not deregistered"),
        }
    }

    fn record(&mut self, listed: Result<(), RegistryError>) {
        self.metrics
            .registration
            .registry_listed
            .set(listed.is_ok().into());
        // Log a change of the state alone: the registration is renewed every few seconds.
        if self.listed.replace(listed.is_ok()) == Some(listed.is_ok()) {
            return;
        }
        let (instance, registry) = (self.own.authority(), &self.registry);
        match listed {
            Ok(()) => audit::registration(audit::Registration::Listed, &instance, registry),
            Err(error) => warn!(
                instance, registry, %error,
                "not listed in the registry; serving, and retrying"
            ),
        }
    }
}
