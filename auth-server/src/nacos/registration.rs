//! Keeps this server registered while it serves, and deregisters it first when it stops.
//!
//! Polls the list instead of trusting an earlier registration: a restarted registry has forgotten
//! it.

use std::sync::Arc;
use std::time::Duration;

use registry::{Instance, RegistryClient, RegistryError, RegistrySettings};
use runtime::process::supervisor::Supervisor;
use tokio::sync::{OnceCell, oneshot};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::audit;
use crate::keys::live::LiveKeys;
use crate::metrics::Metrics;

/// Pause between two polls of the list.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Pause after a failure; doubled after each further one, up to `POLL_INTERVAL`.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Poll interval for the first key, which mostly is there at once.
const KEY_PAUSE: Duration = Duration::from_millis(100);
/// Orchestrators grant 10 to 30 seconds for the whole stop, and the registry drops a process that
/// has ended.
const DEREGISTRATION_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Registration(Option<Running>);

#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Registration {
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Registers `own` once there is a key to serve, and again whenever the registry does not list
    /// it.
    pub(crate) fn start(
        settings: RegistrySettings,
        own: Instance,
        live_keys: Arc<LiveKeys>,
        metrics: Metrics,
        background: &Supervisor,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let worker = Worker {
            settings,
            own,
            live_keys,
            state: State {
                metrics,
                listed: None,
            },
        };
        let task = background.spawn_critical_until_shutdown("the registration", async {
            worker.run(stopped).await;
            Ok(())
        });
        Self(Some(Running { stop, task }))
    }

    /// Deregisters this server, in bounded time.
    pub(crate) async fn end(self) {
        let Some(Running { stop, task }) = self.0 else {
            return;
        };
        let _ = stop.send(());
        if tokio::time::timeout(DEREGISTRATION_TIMEOUT, task)
            .await
            .is_err()
        {
            warn!("the registry did not confirm the deregistration in time");
        }
    }
}

struct Worker {
    settings: RegistrySettings,
    own: Instance,
    live_keys: Arc<LiveKeys>,
    state: State,
}

/// Known state of the list, logged when it changes.
struct State {
    metrics: Metrics,
    /// `None` until the first attempt has ended.
    listed: Option<bool>,
}

impl Worker {
    async fn run(mut self, stopped: oneshot::Receiver<()>) {
        let client = OnceCell::new();
        let registry = self.settings.address().to_string();
        tokio::select! {
            biased;
            _ = stopped => {}
            () = self.keep_listed(&client, &registry) => {}
        }
        // An attempt may be under way: a registration that was sent is undone.
        if let Some(client) = client.get() {
            self.withdraw(client, &registry).await;
        }
    }

    async fn keep_listed(&mut self, client: &OnceCell<RegistryClient>, registry: &str) {
        while self.live_keys.load().is_none() {
            tokio::time::sleep(KEY_PAUSE).await;
        }
        let client = client.get_or_init(|| connected(&self.settings)).await;
        let mut after_failure = FIRST_PAUSE;
        loop {
            let found = match self.state.listed {
                // An entry of this address may be a former process's, and vanish with its
                // connection.
                None => client.register(&self.own).await,
                Some(_) => self.poll(client).await,
            };
            let pause = if found.is_ok() {
                after_failure = FIRST_PAUSE;
                POLL_INTERVAL
            } else {
                let longer = POLL_INTERVAL.min(after_failure * 2);
                std::mem::replace(&mut after_failure, longer)
            };
            self.state.record(&found, &self.own, registry);
            tokio::time::sleep(pause).await;
        }
    }

    async fn poll(&self, client: &RegistryClient) -> Result<(), RegistryError> {
        let listed = client.instances().await?;
        // A disabled entry is listed, and stays disabled.
        if listed.iter().any(|listed| listed.is_at(&self.own)) {
            return Ok(());
        }
        client.register(&self.own).await
    }

    async fn withdraw(&mut self, client: &RegistryClient, registry: &str) {
        let instance = self.own.authority();
        match client.deregister(&self.own).await {
            Ok(()) => {
                self.state.metrics.registered(false);
                audit::registration(audit::Registration::Withdrawn, &instance, registry);
            }
            Err(error) => warn!(instance, registry, %error, "not deregistered"),
        }
    }
}

impl State {
    fn record(&mut self, found: &Result<(), RegistryError>, own: &Instance, registry: &str) {
        let listed = found.is_ok();
        self.metrics.registered(listed);
        if self.listed.replace(listed) == Some(listed) {
            return;
        }
        let instance = own.authority();
        match found {
            Ok(()) => audit::registration(audit::Registration::Listed, &instance, registry),
            Err(error) => warn!(
                instance, registry, %error,
                "not listed in the registry; serving, and retrying"
            ),
        }
    }
}

/// Starts the client; that fails for lack of a thread or a descriptor, not of a registry.
async fn connected(settings: &RegistrySettings) -> RegistryClient {
    loop {
        match RegistryClient::start(settings).await {
            Ok(client) => return client,
            Err(error) => {
                warn!(%error, "the registry client does not start; trying again");
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }
}
