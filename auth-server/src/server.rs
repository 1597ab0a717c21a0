//! Accepts connections and ends them gracefully. What happens on one of them is `connection`'s.

mod automatic_answers;
mod connection;

use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::warn;

/// In-flight requests are short (the longest is a body that arrives slowly), and orchestrators
/// grant 10 to 30 seconds in all.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Accepting fails for want of file descriptors; trying again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` resolves, then finishes what is in flight.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    request_timeout: Duration,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(());
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(connection::serve(stream, router.clone(), request_timeout, stopped.clone()));
                }
                Err(error) => {
                    warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop((listener, stopped));
    stop.send_replace(());
    // Each connection holds a receiver to its end.
    if tokio::time::timeout(DRAIN_TIMEOUT, stop.closed())
        .await
        .is_err()
    {
        warn!("connections that did not finish in time are cut off");
    }
}

#[cfg(test)]
mod tests;
