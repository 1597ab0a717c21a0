//! Checks the readiness of a running program, for container health checks.

use std::net::SocketAddr;
use std::time::Duration;

use crate::admin::client::{AdminResponse, request};
use crate::process::exit::ExitError;

/// Requests `/readyz` of the admin port, which may be given as it was configured to listen
/// (`0.0.0.0:9001`). `timeout` bounds the whole exchange.
///
/// # Errors
/// [`ExitError::Unavailable`] with the response, or with the reason why it is missing.
pub fn ready(admin: SocketAddr, timeout: Duration) -> Result<(), ExitError> {
    outcome(&request(admin, "GET", "/readyz", timeout)?)
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
        for (status_line, body, line) in [
            ("HTTP/1.1 200 OK", "[]", None),
            (
                "HTTP/1.1 503 Service Unavailable",
                "[{}]",
                Some("not ready: [{}]"),
            ),
            (
                "HTTP/1.1 404 Not Found",
                "",
                Some("not an admin port: it responded \"HTTP/1.1 404 Not Found\""),
            ),
            (
                "SSH-2.0-x 200",
                "",
                Some("not an admin port: it responded \"SSH-2.0-x 200\""),
            ),
            ("", "", Some("not an admin port: it responded \"\"")),
        ] {
            let response = AdminResponse {
                status_line: status_line.to_owned(),
                body: body.to_owned(),
            };
            let failure = line.map(|line| ExitError::Unavailable(line.to_owned()));
            assert_eq!(outcome(&response).err(), failure);
        }
    }
}
