//! Supervised background tasks.

use std::convert::Infallible;
use std::pin::Pin;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::{BackgroundService, GenBackgroundService, background_service};
use postern_process::supervisor::Supervisor;

/// Wraps a task as a Pingora service, which would drop a panic silently. The task runs to the end of
/// the process, and returns the error that it cannot recover from.
pub(crate) fn supervised(
    name: &'static str,
    work: impl Future<Output = Result<Infallible, String>> + Send + 'static,
    background: &Supervisor,
) -> GenBackgroundService<Supervised> {
    let work = async { work.await.map(|never| match never {}) };
    until_stopped(name, work, background)
}

/// Wraps a task that ends before the process does, once it was stopped.
pub(crate) fn until_stopped(
    name: &'static str,
    work: impl Future<Output = Result<(), String>> + Send + 'static,
    background: &Supervisor,
) -> GenBackgroundService<Supervised> {
    background_service(
        name,
        Supervised {
            name,
            work: Mutex::new(Some(Box::pin(work))),
            background: background.clone(),
        },
    )
}

/// A task whose end is reported.
pub(crate) struct Supervised {
    name: &'static str,
    /// Taken at the start.
    work: Mutex<Option<Work>>,
    background: Supervisor,
}

type Work = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

#[async_trait]
impl BackgroundService for Supervised {
    async fn start(&self, _shutdown: ShutdownWatch) {
        let work = self.work.lock().take();
        if let Some(work) = work {
            let _ = self
                .background
                .spawn_critical_until_shutdown(self.name, work)
                .await;
        }
    }
}
