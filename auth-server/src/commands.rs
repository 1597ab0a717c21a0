//! Commands besides `serve`.

pub(crate) mod application;
pub(crate) mod check;
pub(crate) mod dev;
pub(crate) mod keys;
pub(crate) mod revoke;
pub(crate) mod store;
pub(crate) mod token;
pub(crate) mod user;

use std::io::Write;

use aws_lc_rs::error::Unspecified;
use postern_process::exit::ExitError;
use postern_process::logs::sanitize::LogText;
use postern_process::output;
use rustix::process::getuid;
use rustix::system::uname;
use serde_json::Value;

/// Max attempts of a change. Each retry means that another one came first: a rollout may register many applications
/// at once, and a client may refresh the session that is to end.
const ATTEMPTS: usize = 64;

/// Prints a note for the operator at the terminal.
fn print_note(text: &str) {
    if !cfg!(feature = "simulation") {
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

/// Returns the actor of this process, `user@host`, for the audit log, which proves nothing. Under `sudo` the
/// name is the user's own; without a name in the environment, as in most containers, it is the uid.
fn actor() -> String {
    let mut users = ["SUDO_USER", "LOGNAME", "USER"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok());
    let user = users
        .find(|user| !user.is_empty())
        .unwrap_or_else(|| format!("uid-{}", getuid().as_raw()));
    LogText(&format!("{user}@{}", uname().nodename().to_string_lossy())).to_string()
}

fn print(text: &str) -> Result<(), ExitError> {
    if cfg!(feature = "simulation") {
        return Ok(());
    }
    output::print(&format!("{text}\n"))
}

fn no_randomness(_: Unspecified) -> ExitError {
    ExitError::Software("the system gives no randomness".to_owned())
}

/// Prints one row of a list, as JSON on a line; no character of it changes the terminal.
fn print_row(row: &Value) -> Result<(), ExitError> {
    let is_plain = |c: char| c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric();
    let mut line = String::new();
    for c in row.to_string().chars() {
        if is_plain(c) {
            line.push(c);
            continue;
        }
        // JSON escapes a character beyond 16 bits as two units.
        for unit in c.encode_utf16(&mut [0; 2]) {
            line += &format!("\\u{unit:04x}");
        }
    }
    print(&line)
}
