//! Checks the readiness of a running program, for container health checks.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, StatusCode};
use postern_process::exit::ExitError;
use serde_json::Value;

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
        // Other services have a page at each path.
        StatusCode::OK if serde_json::from_str::<Vec<Value>>(&response.body).is_err() => {
            let other = "not an admin port: it responded with another document";
            Err(ExitError::Unavailable(other.to_owned()))
        }
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
    fn only_conditions_with_200_are_ready() {
        let page = "not an admin port: it responded with another document";
        let other = "not an admin port: it responded 404 Not Found";
        for (status, body, expected) in [
            (StatusCode::OK, "[{}]", Ok(())),
            (StatusCode::OK, "<!doctype html>", Err(page)),
            (StatusCode::OK, "", Err(page)),
            (StatusCode::OK, "{\"status\":\"UP\"}", Err(page)),
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "[{}]",
                Err("not ready: [{}]"),
            ),
            (StatusCode::NOT_FOUND, "[{}]", Err(other)),
        ] {
            let body = body.to_owned();
            let outcome = outcome(&AdminResponse { status, body });
            let failure = outcome.map_err(|failure| failure.to_string());
            assert_eq!(failure, expected.map_err(str::to_owned));
        }
    }
}
