//! `sidecar explain`: the reason why a request is accepted or rejected, by the rules of the proxy.
//!
//! Explained by a running sidecar (`POST /explain` on its admin port, for loopback peers only), or
//! here from settings and a key file.

mod offline;

use std::time::{Duration, SystemTime};

use http::HeaderName;
use runtime::admin::client;
use runtime::command_line;
use runtime::files::bounded_read;
use runtime::process::exit::ExitError;
use runtime::process::output;
use wire::explain::report::{Explanation, Verdict};

use super::not_a_sidecar;
use crate::admin::explain::request::ExplainRequest;
use crate::admin::explain::{JSON, MAX_BODY_BYTES, PATH};
use crate::cli::Cli;
use crate::cli::explain_args::ExplainArgs;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the command.
///
/// # Errors
/// Without a response of the sidecar, or for input that is not a request.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), ExitError> {
    let question = question(args)?;
    reject_unused_flags(args)?;
    let explanation = match offline::explainer(args)? {
        None => request(args, &question)?,
        Some(explainer) => {
            let explanation = explainer.explain(&question, SystemTime::now());
            let explanation = explanation.map_err(|why| ExitError::Usage(why.to_string()))?;
            offline::of_files(explanation)
        }
    };
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
        Some(expected) => as_expected(expected, &explanation.verdict),
    }
}

fn question(args: &ExplainArgs) -> Result<ExplainRequest, ExitError> {
    let mut headers = headers(args)?;
    let has_host = headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"));
    let target = if has_host {
        args.target.clone()
    } else {
        let (host, target) = host_and_target(&args.target);
        headers.insert(0, ("Host".to_owned(), host.to_owned()));
        target
    };
    if args.method != "CONNECT" {
        require_target(&target)?;
    }
    Ok(ExplainRequest {
        method: args.method.clone(),
        target,
        headers,
        at: args.at,
    })
}

/// Compares the verdict with the expected outcome or reason code.
fn as_expected(expected: &str, verdict: &Verdict) -> Result<(), ExitError> {
    let found = verdict.reason.as_ref().unwrap_or(&verdict.outcome);
    if expected == found {
        return Ok(());
    }
    Err(ExitError::Unmet(format!(
        "--expect {expected}: found {found}"
    )))
}

/// Splits a pasted URL into path and query, and a `Host`. Beside an explicit `Host` it stays an
/// absolute-form target (RFC 9112 §3.2.2).
fn host_and_target(given: &str) -> (&str, String) {
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| given.strip_prefix(scheme));
    let Some(rest) = rest else {
        return ("localhost", given.to_owned());
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let slash = if target.starts_with('/') { "" } else { "/" };
    (host, format!("{slash}{target}"))
}

/// Rejects flags that have no effect: a running sidecar uses its own settings, and a key file no
/// address. Variables and the configuration file are ignored, because they are for `serve`.
fn reject_unused_flags(args: &ExplainArgs) -> Result<(), ExitError> {
    let is_address = |flag: &String| flag == "--admin-listen";
    let mut typed = command_line::flags_on_command_line::<Cli>().into_iter();
    if offline::is_requested(args) {
        return typed.find(is_address).map_or(Ok(()), |flag| {
            let line = format!("{flag}: with a key file no sidecar is queried");
            Err(ExitError::Usage(line))
        });
    }
    typed.find(|flag| !is_address(flag)).map_or(Ok(()), |flag| {
        let line = format!(
            "{flag}: a running sidecar uses its own settings; to use these, name a key file: \
             --key-file, --jwks-file or --public-key-file"
        );
        Err(ExitError::Usage(line))
    })
}

/// Rejects targets that no client would send (RFC 9112 §3.2).
fn require_target(target: &str) -> Result<(), ExitError> {
    let of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_absolute =
        |(scheme, _): (&str, &str)| !scheme.is_empty() && scheme.bytes().all(of_scheme);
    if target.starts_with('/') || target == "*" || target.split_once("://").is_some_and(is_absolute)
    {
        return Ok(());
    }
    let line = format!("'{target}' is not a request target: it has to begin with a slash");
    Err(ExitError::Usage(line))
}

/// Returns the fields of the command line; `@-` reads them from standard input, where no other user
/// of the machine can see them.
fn headers(args: &ExplainArgs) -> Result<Vec<(String, String)>, ExitError> {
    let mut headers = Vec::new();
    for given in &args.headers {
        if given == "@-" {
            let lines = bounded_read::text_of(std::io::stdin().lock(), MAX_BODY_BYTES as u64)
                .map_err(|why| ExitError::Usage(format!("standard input: {why}")))?;
            for line in lines.lines().filter(|line| !line.trim().is_empty()) {
                headers.push(field(line)?);
            }
        } else {
            headers.push(field(given)?);
        }
    }
    Ok(headers)
}

/// Parses a header line. The error does not repeat it: it may hold a token.
fn field(line: &str) -> Result<(String, String), ExitError> {
    let (name, value) = line
        .split_once(':')
        .ok_or_else(|| ExitError::Usage("--header: expected 'NAME: VALUE'".to_owned()))?;
    // As written: the service gets it in this case.
    let name = name.trim();
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| ExitError::Usage("--header: the name is not valid".to_owned()))?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

fn request(args: &ExplainArgs, question: &ExplainRequest) -> Result<Explanation, ExitError> {
    let json =
        serde_json::to_vec(question).map_err(|error| ExitError::Software(error.to_string()))?;
    let response = client::post(args.admin.admin_listen, PATH, JSON, &json, RESPONSE_TIMEOUT)?;
    match response.status() {
        Some(200) => serde_json::from_str(&response.body).map_err(|error| {
            ExitError::Unavailable(format!("not the admin port of a sidecar: {error}"))
        }),
        Some(400) => Err(ExitError::Usage(response.body.trim_end().to_owned())),
        _ => Err(not_a_sidecar(&response)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_a_name_and_a_value() {
        assert_eq!(
            field(" Accept:  a: b ").ok(),
            Some(("Accept".into(), "a: b".into()))
        );
        for line in ["", "token", "a b: c"] {
            assert_eq!(
                field(line).map_err(|failure| failure.code()),
                Err(64),
                "{line}"
            );
        }
    }
}
