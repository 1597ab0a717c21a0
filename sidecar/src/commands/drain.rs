//! `sidecar drain`: the stop's first half by command, for an orchestrator's preStop hook.
//!
//! Kubernetes runs the hook before it signals anybody, and signals a native sidecar last. The hook
//! holds that up until callers have noticed that they have to go elsewhere and nothing is in flight.

use std::net::SocketAddr;
use std::time::Duration;

use runtime::admin_client::{self, AdminResponse};
use runtime::exit::Failure;

use crate::admin::drain::{PATH, Progress};
use crate::commands::wait;

const ONE_ANSWER: Duration = Duration::from_secs(2);

/// Begins the drain and waits for its end.
///
/// # Errors
/// When `timeout` is over before, or no sidecar answers.
pub(crate) fn until_drained(admin: SocketAddr, timeout: Duration) -> Result<(), Failure> {
    wait::asking(timeout, || {
        let progress = progress(&admin_client::ask(admin, "POST", PATH, ONE_ANSWER)?)?;
        if progress.drained {
            return Ok(wait::Answer::Done);
        }
        Ok(wait::Answer::NotYet(Failure::Unavailable(format!(
            "not drained after {} s: {} requests in flight",
            timeout.as_secs(),
            progress.in_flight
        ))))
    })
}

fn progress(answer: &AdminResponse) -> Result<Progress, Failure> {
    serde_json::from_str(&answer.body).map_err(|_| {
        Failure::Unavailable(format!(
            "not the admin port of a sidecar: it answered {:?}",
            answer.status_line
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_is_told_apart() {
        let answer = AdminResponse {
            status_line: "HTTP/1.1 404 Not Found".to_owned(),
            body: String::new(),
        };
        assert!(progress(&answer).is_err_and(|failure| failure.code() == 69));
    }
}
