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

use runtime::process::exit::ExitError;
use runtime::process::output;
use rustix::process::getuid;
use rustix::system::uname;
use serde_json::Value;

/// Max characters of the name of an account or a host.
const MAX_NAME: usize = 64;

fn print_note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Returns the actor of this process, for the audit log. It proves nothing.
fn actor() -> String {
    let variable = |name: &str| std::env::var(name).ok();
    let system = uname();
    actor_of(variable, getuid().as_raw(), system.nodename().to_str().ok())
}

/// Returns `user@host`. Of a user behind `sudo` the own name counts; without a usable name in the
/// environment, as in most containers, the uid does.
fn actor_of(variable: impl Fn(&str) -> Option<String>, uid: u32, host: Option<&str>) -> String {
    let is_plain = |name: &str| {
        let plain = |c: char| !c.is_whitespace() && !c.is_control();
        (1..=MAX_NAME).contains(&name.chars().count()) && name.chars().all(plain)
    };
    let names = ["SUDO_USER", "LOGNAME", "USER"];
    let user = names.into_iter().filter_map(variable);
    let user = user.into_iter().find(|name| is_plain(name));
    let user = user.unwrap_or_else(|| format!("uid-{uid}"));
    let host = host.filter(|name| is_plain(name)).unwrap_or("unknown");
    format!("{user}@{host}")
}

fn print(text: &str) -> Result<(), ExitError> {
    output::print(&format!("{text}\n"))
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
        for unit in c.encode_utf16(&mut [0; 2]) {
            line += &format!("\\u{unit:04x}");
        }
    }
    print(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_is_a_user_at_a_host_whatever_the_environment_holds() {
        let long = "x".repeat(65);
        for (variables, host, expected) in [
            (
                &[("USER", "b"), ("LOGNAME", "ada")][..],
                Some("desk"),
                "ada@desk",
            ),
            (
                &[("USER", "root"), ("SUDO_USER", "ada")],
                Some("desk"),
                "ada@desk",
            ),
            (
                &[("LOGNAME", ""), ("USER", "ada")],
                Some("desk"),
                "ada@desk",
            ),
            (&[("USER", "a\nb")], Some("desk"), "uid-7@desk"),
            (&[("USER", "a b")], Some("desk"), "uid-7@desk"),
            (&[("USER", long.as_str())], Some("desk"), "uid-7@desk"),
            (&[], Some("a\u{1b}b"), "uid-7@unknown"),
        ] {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(actor_of(variable, 7, host), expected);
        }
    }
}
