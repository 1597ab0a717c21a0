//! Checks the readiness of a running program, for container health checks.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, StatusCode};
use postern_process::exit::ExitError;

use crate::admin::client::{AdminRequest, AdminResponse};

/// Requests `/readyz` of the admin port, which may be given as it was configured to listen
/// (`0.0.0.0:9001`). `timeout` bounds the whole exchange.
///
/// # Errors
/// [`ExitError::Unavailable`] with the response, or with the reason why it is missing.
pub fn ready(admin: SocketAddr, timeout: Duration) -> Result<(), ExitError> {
    let request = AdminRequest {
        method: Method::GET,
        path: "/readyz",
        json: &[],
        timeout,
    };
    outcome(&request.send(admin)?)
}

fn outcome(response: &AdminResponse) -> Result<(), ExitError> {
    match response.status {
        StatusCode::OK => Ok(()),
        StatusCode::SERVICE_UNAVAILABLE => Err(ExitError::Unavailable(format!(
            "not ready: {}",
            response.body
        ))),
        status => Err(ExitError::Unavailable(format!(
            "not an admin port: it responded {status}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_200_is_ready() {
        let outcome = |status| {
            let body = "[{}]".to_owned();
            outcome(&AdminResponse { status, body }).map_err(|failure| failure.to_string())
        };
        assert_eq!(outcome(StatusCode::OK), Ok(()));
        let not_ready = outcome(StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(not_ready, Err("not ready: [{}]".to_owned()));
        let other = "not an admin port: it responded 404 Not Found";
        assert_eq!(outcome(StatusCode::NOT_FOUND), Err(other.to_owned()));
    }
}
