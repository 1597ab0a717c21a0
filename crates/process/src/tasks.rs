//! Tasks and threads of the program, which end with the program.

use tokio::task::{JoinError, JoinHandle};

/// Starts work beside the caller's, on its runtime.
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    #[cfg(feature = "simulation")]
    return crate::simulation::spawn(work);
    #[cfg(not(feature = "simulation"))]
    tokio::spawn(work)
}

/// Runs work on a thread for work that takes long or waits for files.
///
/// # Errors
/// [`JoinError`] if the work panics, or the process ends.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    #[cfg(feature = "simulation")]
    return crate::simulation::spawn(async { work() }).await;
    #[cfg(not(feature = "simulation"))]
    tokio::task::spawn_blocking(work).await
}
