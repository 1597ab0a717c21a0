//! `sidecar drain`: starts the drain, for an orchestrator's preStop hook.
//!
//! Kubernetes runs the hook before it sends a signal, and signals native sidecars last. The hook
//! delays that until callers have moved on and no request is in flight.

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use postern_process::exit::ExitError;
use postern_transport::admin::client::{AdminRequest, AdminResponse};

use crate::admin::drain::{PATH, Progress};
use crate::commands::{not_a_sidecar, wait};

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the drain and waits for its end.
///
/// # Errors
/// At `timeout`, or without a response of the sidecar.
pub(crate) fn until_drained(admin: SocketAddr, timeout: Duration) -> Result<(), ExitError> {
    wait::until_done(timeout, || {
        let request = AdminRequest {
            method: Method::POST,
            path: PATH,
            json: &[],
            timeout: RESPONSE_TIMEOUT,
        };
        let progress = progress(&request.send(admin)?)?;
        if progress.drained {
            return Ok(wait::Poll::Done);
        }
        Ok(wait::Poll::NotYet(ExitError::Unavailable(format!(
            "not drained after {} s: {} requests in flight",
            timeout.as_secs(),
            progress.in_flight
        ))))
    })
}

fn progress(response: &AdminResponse) -> Result<Progress, ExitError> {
    serde_json::from_str(&response.body)
        .map_err(|_| not_a_sidecar(format_args!("its response was {}", response.status)))
}
