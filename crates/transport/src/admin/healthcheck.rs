//! Checks the readiness of a running program, for container health checks.

use std::net::SocketAddr;
use std::time::Duration;

use crate::admin::client::{AdminResponse, request};
use postern_process::exit::ExitError;

/// Requests `/readyz` of the admin port, which may be given as it was configured to listen
/// (`0.0.0.0:9001`). `timeout` bounds the whole exchange.
///
/// # Errors
/// [`ExitError::Unavailable`] with the response, or with the reason why it is missing.
pub fn ready(admin: SocketAddr, timeout: Duration) -> Result<(), ExitError> {
    outcome(&request(admin, ("GET", "/readyz"), &[], timeout)?)
}

fn outcome(response: &AdminResponse) -> Result<(), ExitError> {
    match response.status() {
        Some(200) => Ok(()),
        Some(503) => Err(ExitError::Unavailable(format!(
            "not ready: {}",
            response.body
        ))),
        _ => Err(ExitError::Unavailable(format!(
            "not an admin port: it responded {:?}",
            response.status_line
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_200_is_ready() {
        let outcome = |status_line: &str| {
            let (status_line, body) = (status_line.to_owned(), "[{}]".to_owned());
            let outcome = outcome(&AdminResponse { status_line, body });
            outcome.map_err(|failure| failure.to_string())
        };
        assert_eq!(outcome("HTTP/1.1 200 OK"), Ok(()));
        let not_ready = outcome("HTTP/1.1 503 Service Unavailable");
        assert_eq!(not_ready, Err("not ready: [{}]".to_owned()));
        for other in ["HTTP/1.1 404 Not Found", "SSH-2.0-x 200", ""] {
            let why = format!("not an admin port: it responded \"{other}\"");
            assert_eq!(outcome(other), Err(why));
        }
    }
}
