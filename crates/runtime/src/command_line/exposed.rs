//! Secrets on the command line, where every user of the machine can read them.

use std::ffi::OsString;

use clap::{Arg, Parser};

use super::{all_settings, command, typed_values};

/// Returns one line for each typed secret and for each typed address with a password; no line
/// repeats a value.
#[must_use]
pub fn exposed_secrets<C: Parser>() -> Vec<String> {
    let arguments: Vec<_> = std::env::args_os().collect();
    exposed(&all_settings(&command::<C>()), &arguments)
}

pub(super) fn exposed(settings: &[&Arg], arguments: &[OsString]) -> Vec<String> {
    let mut lines: Vec<_> = settings
        .iter()
        .filter_map(|setting| line(setting, arguments))
        .collect();
    // Several commands may have the setting.
    lines.sort_unstable();
    lines.dedup();
    lines
}

fn line(setting: &Arg, arguments: &[OsString]) -> Option<String> {
    let flag = setting.get_long()?;
    let values = typed_values(setting, arguments);
    let secret = if values.is_empty() {
        return None;
    } else if setting.is_hide_env_values_set() {
        "this secret"
    } else if values.iter().any(|value| has_password(value)) {
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

/// Returns true for `SCHEME://USER:PASSWORD@…`; the user may be missing. An `@` after the authority
/// (RFC 3986 §3.2) is not part of it.
fn has_password(address: &str) -> bool {
    let Some((_, rest)) = address.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let credentials = authority.rsplit_once('@');
    credentials
        .and_then(|(credentials, _)| credentials.split_once(':'))
        .is_some_and(|(_, password)| !password.is_empty())
}
