//! `sidecar suggest`: a pass list from the requests that report-only mode let through.

use std::net::SocketAddr;
use std::time::Duration;

use runtime::admin::client;
use runtime::process::exit::ExitError;
use runtime::process::output;

use super::not_a_sidecar;
use crate::admin::suggest::PATH;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Prints what the running sidecar suggests.
///
/// # Errors
/// [`ExitError::Unavailable`] without a response of a sidecar.
pub(crate) fn run(admin: SocketAddr) -> Result<(), ExitError> {
    let response = client::request(admin, "GET", PATH, RESPONSE_TIMEOUT)?;
    match response.status() {
        Some(200) => output::print(&response.body),
        _ => Err(not_a_sidecar(&response)),
    }
}
