//! The two signals that end a program, and the one that reloads its files.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::ExitError;

/// The received signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Termination {
    /// SIGTERM: a supervisor, whose load balancer may still route here.
    Requested,
    /// SIGINT: a user at a terminal.
    Interrupted,
}

/// SIGTERM and SIGINT, received from the moment this is made: until then they end the process at once.
#[derive(Debug)]
pub struct Terminations {
    terminate: Signal,
    interrupt: Signal,
}

impl Terminations {
    /// Installs the handlers.
    ///
    /// # Errors
    /// When a handler cannot be installed.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Termination {
        tokio::select! {
            _ = self.terminate.recv() => {
                tracing::info!("SIGTERM received");
                Termination::Requested
            }
            _ = self.interrupt.recv() => {
                tracing::info!("SIGINT received");
                Termination::Interrupted
            }
        }
    }
}

/// Returns the error of a program that receives no signals.
pub fn signal_error(error: std::io::Error) -> ExitError {
    ExitError::Software(format!("signals cannot be received: {error}"))
}

/// Keeps SIGHUP from ending the process, from here on.
///
/// # Errors
/// [`ExitError::Software`] when the handler cannot be installed.
pub fn ignore_sighup() -> Result<(), ExitError> {
    ignore(SignalKind::hangup())
}

/// Keeps SIGINT from ending the process, as long as it lives: a reader of a password gives the terminal
/// back first.
///
/// # Errors
/// [`ExitError::Software`] when the handler cannot be installed.
pub fn ignore_sigint() -> Result<(), ExitError> {
    ignore(SignalKind::interrupt())
}

fn ignore(kind: SignalKind) -> Result<(), ExitError> {
    // tokio's handler stays for the life of the process; installing it needs a runtime.
    let install = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?
            .block_on(async { signal(kind).map(drop) })
    };
    install().map_err(|error: std::io::Error| {
        ExitError::Software(format!(
            "no handler for signal {}: {error}",
            kind.as_raw_value()
        ))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use std::process::{Command, id};

    use super::*;

    #[tokio::test]
    async fn either_signal_ends_the_wait() {
        for (name, termination) in [
            ("TERM", Termination::Requested),
            ("INT", Termination::Interrupted),
        ] {
            let mut terminations = Terminations::install().unwrap();
            send(name);
            assert_eq!(terminations.next().await, termination);
        }
    }

    #[test]
    fn an_ignored_signal_does_not_end_the_process() {
        ignore_sigint().unwrap();
        send("INT");
    }

    /// To this process.
    pub(crate) fn send(name: &str) {
        let kill = format!("kill -{name} {}", id());
        let status = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(status.success());
    }
}
