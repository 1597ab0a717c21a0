//! Background work, whose end is reported, and the state in which the process drains.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::{BackgroundService, GenBackgroundService, background_service};
use runtime::supervisor::Supervisor;

/// Work that goes on to the end of the process. What fails and can be tried again is tried again.
#[async_trait]
pub(crate) trait Work: Send + Sync + 'static {
    /// Never done; where it cannot go on, why.
    async fn run(&self) -> Result<Infallible, String>;
}

/// A service for Pingora, which drops a task that panics without a word.
pub(crate) fn watched<W: Work>(
    name: &'static str,
    work: W,
    background: &Supervisor,
) -> GenBackgroundService<Watched<W>> {
    let watched = Watched {
        name,
        work: Arc::new(work),
        background: background.clone(),
    };
    background_service(name, watched)
}

/// Work whose end is told.
#[derive(Debug)]
pub(crate) struct Watched<W> {
    name: &'static str,
    work: Arc<W>,
    background: Supervisor,
}

#[async_trait]
impl<W: Work> BackgroundService for Watched<W> {
    async fn start(&self, _shutdown: ShutdownWatch) {
        let work = Arc::clone(&self.work);
        let working = async move { work.run().await.map(|never| match never {}) };
        let _ = self
            .background
            .spawn_critical_until_shutdown(self.name, working)
            .await;
    }
}

/// Whether, and since when, the process is on its way out: answers then close their connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draining(Arc<OnceLock<Instant>>);

impl Draining {
    pub(crate) fn is_on(&self) -> bool {
        self.0.get().is_some()
    }

    /// Begins, or has begun; since when.
    pub(crate) fn begin(&self) -> Instant {
        *self.0.get_or_init(Instant::now)
    }
}
