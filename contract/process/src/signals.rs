//! The two signals that ask a program to end.

use tokio::signal::unix::{SignalKind, signal};

/// Which of them came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Termination {
    /// SIGTERM: a supervisor, whose load balancer may still route here.
    Requested,
    /// SIGINT: somebody at a terminal.
    Interrupted,
}

/// Resolves at the first SIGTERM or SIGINT.
///
/// When a handler cannot be installed it never resolves: the kernel's default action then still
/// ends the process, which is what the signal asked for.
pub async fn terminated() -> Termination {
    tokio::select! {
        () = received(SignalKind::terminate()) => {
            tracing::info!("SIGTERM received");
            Termination::Requested
        }
        () = received(SignalKind::interrupt()) => {
            tracing::info!("SIGINT received");
            Termination::Interrupted
        }
    }
}

async fn received(kind: SignalKind) {
    match signal(kind) {
        Ok(mut stream) => {
            stream.recv().await;
        }
        Err(error) => {
            tracing::error!(%error, "no signal handler: the end will not be graceful");
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::pin::pin;
    use std::process::{Command, id};

    use super::*;

    #[tokio::test]
    async fn either_signal_ends_the_wait() {
        for (name, termination) in [
            ("TERM", Termination::Requested),
            ("INT", Termination::Interrupted),
        ] {
            let mut end = pin!(terminated());
            // Polled once, so that the handlers stand before the signal is sent.
            tokio::select! {
                biased;
                _ = &mut end => unreachable!("no signal was sent"),
                () = std::future::ready(()) => {}
            }
            let kill = format!("kill -{name} {}", id());
            assert!(
                Command::new("sh")
                    .args(["-c", &kill])
                    .status()
                    .unwrap()
                    .success()
            );
            assert_eq!(end.await, termination);
        }
    }
}
