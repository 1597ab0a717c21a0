//! Supervised background tasks, and the draining state.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::{BackgroundService, GenBackgroundService, background_service};
use runtime::supervisor::Supervisor;

/// A task that runs to the end of the process. It retries what can be retried.
#[async_trait]
pub(crate) trait BackgroundTask: Send + Sync + 'static {
    /// Runs forever; returns the error that it cannot recover from.
    async fn run(&self) -> Result<Infallible, String>;
}

/// Wraps a task as a Pingora service, which would drop a panic silently.
pub(crate) fn supervised<W: BackgroundTask>(
    name: &'static str,
    work: W,
    background: &Supervisor,
) -> GenBackgroundService<Supervised<W>> {
    let watched = Supervised {
        name,
        work: Arc::new(work),
        background: background.clone(),
    };
    background_service(name, watched)
}

/// A task whose end is reported.
#[derive(Debug)]
pub(crate) struct Supervised<W> {
    name: &'static str,
    work: Arc<W>,
    background: Supervisor,
}

#[async_trait]
impl<W: BackgroundTask> BackgroundService for Supervised<W> {
    async fn start(&self, _shutdown: ShutdownWatch) {
        let work = Arc::clone(&self.work);
        let working = async move { work.run().await.map(|never| match never {}) };
        let _ = self
            .background
            .spawn_critical_until_shutdown(self.name, working)
            .await;
    }
}

/// The time since which the process drains: responses then close their connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draining(Arc<OnceLock<Instant>>);

impl Draining {
    pub(crate) fn is_on(&self) -> bool {
        self.0.get().is_some()
    }

    /// Starts the drain, and returns the time of its start.
    pub(crate) fn begin(&self) -> Instant {
        *self.0.get_or_init(Instant::now)
    }
}
