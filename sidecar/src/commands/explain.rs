//! `sidecar explain`: the reason why a running sidecar accepts or rejects a request (`POST /explain`
//! on its admin port, for loopback peers only).

use std::time::Duration;

use http::{Method, StatusCode};
use postern_contract::explanation::Explanation;
use postern_process::exit::ExitError;
use postern_process::files::bounded_read;
use postern_process::output;
use postern_transport::admin::client::AdminRequest;

use super::not_a_sidecar;
use crate::admin::explain::request::ExplainRequest;
use crate::admin::explain::{MAX_BODY_BYTES, PATH};
use crate::cli::explain_args::ExplainArgs;
use crate::telemetry::outcome::Outcome;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the command.
///
/// # Errors
/// Without a response of the sidecar, or for input that is not a request.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), ExitError> {
    let lines = header_lines(args)?;
    let lines = lines.iter().map(String::as_str);
    let request = ExplainRequest::from_lines(&args.method, &args.target, lines, args.at)
        .map_err(|why| ExitError::Usage(why.to_string()))?;
    let explanation = explain(args, &request)?;
    let text = if args.json {
        serde_json::to_string_pretty(&explanation)
            .map_err(|error| ExitError::Software(error.to_string()))?
            + "\n"
    } else {
        explanation.to_string()
    };
    output::print(&text)?;
    match &args.expect {
        None => Ok(()),
        Some(expected) => as_expected(expected, &explanation),
    }
}

/// Compares the outcome with the expected one or reason code.
fn as_expected(expected: &str, explanation: &Explanation) -> Result<(), ExitError> {
    // What happens: a request that is only reported reaches the service, whatever its reason code.
    let found = match (&explanation.reason, &*explanation.outcome) {
        (Some(reason), outcome) if outcome != Outcome::REPORTED => reason,
        (_, outcome) => outcome,
    };
    if expected == found {
        return Ok(());
    }
    let note = match &explanation.reason {
        Some(reason) if found == Outcome::REPORTED => {
            format!(" in report-only mode, which forwards it in spite of {reason}")
        }
        _ => String::new(),
    };
    Err(ExitError::Unmet(format!(
        "--expect {expected}: found {found}{note}"
    )))
}

/// Returns the fields of the command line; `@-` reads them from standard input, where no other user
/// of the machine can see them.
fn header_lines(args: &ExplainArgs) -> Result<Vec<String>, ExitError> {
    let mut lines = Vec::new();
    for given in &args.headers {
        if given == "@-" {
            let text = bounded_read::text_of(std::io::stdin().lock(), MAX_BODY_BYTES as u64)
                .map_err(|why| ExitError::Usage(format!("standard input: {why}")))?;
            lines.extend(text.lines().map(str::to_owned));
        } else {
            lines.push(given.clone());
        }
    }
    Ok(lines)
}

fn explain(args: &ExplainArgs, request: &ExplainRequest) -> Result<Explanation, ExitError> {
    let json =
        serde_json::to_vec(request).map_err(|error| ExitError::Software(error.to_string()))?;
    let post = AdminRequest {
        method: Method::POST,
        path: PATH,
        json: &json,
        timeout: RESPONSE_TIMEOUT,
    };
    let response = post.send(args.admin.admin_listen)?;
    match response.status {
        StatusCode::OK => serde_json::from_str(&response.body).map_err(not_a_sidecar),
        // The sidecar rejects the request to explain itself: its text gives the reason.
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
            Err(ExitError::Usage(response.body.trim_end().to_owned()))
        }
        status => Err(not_a_sidecar(format_args!("its response was {status}"))),
    }
}
