//! Secrets on the command line, where every user of the machine can read them.

use std::ffi::OsStr;

use clap::Arg;

use super::WithFile;
use super::sources::Sources;

/// Returns one line for each typed secret and for each typed address with a password; no line
/// repeats a value.
#[must_use]
pub fn exposed_secrets<C: WithFile>() -> Vec<String> {
    match Sources::from_process::<C>() {
        Some(sources) => exposed(&sources),
        None => Vec::new(),
    }
}

pub(super) fn exposed(sources: &Sources) -> Vec<String> {
    sources
        .typed()
        .filter_map(|(setting, values)| line(setting, &values))
        .collect()
}

fn line(setting: &Arg, values: &[&OsStr]) -> Option<String> {
    let flag = setting.get_long()?;
    let mut addresses = values.iter().map(|value| value.to_string_lossy());
    let secret = if setting.is_hide_env_values_set() {
        "this secret"
    } else if addresses.any(|address| has_password(&address)) {
        "the password in this address"
    } else {
        return None;
    };
    let variable = setting.get_env()?.to_string_lossy();
    Some(format!(
        "--{flag}: every user of this machine can read {secret} on the command line; {variable} or a file \
         keeps it to itself"
    ))
}

/// Returns true for `SCHEME://USER:PASSWORD@…`, where the user may be missing, and for `…?pass=PASSWORD`
/// of a Redis socket. An `@` after the authority (RFC 3986 §3.2) is not part of it.
fn has_password(address: &str) -> bool {
    let Some((_, rest)) = address.split_once("://") else {
        return false;
    };
    if rest.contains("?pass=") || rest.contains("&pass=") {
        return true;
    }
    // The last `@` counts: a password may hold one.
    let credentials = rest
        .split(['/', '?', '#'])
        .next()
        .unwrap_or(rest)
        .rsplit_once('@');
    credentials
        .and_then(|(credentials, _)| credentials.split_once(':'))
        .is_some_and(|(_, password)| !password.is_empty())
}
