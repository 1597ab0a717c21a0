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

use crate::changed_by::{ChangedBy, actor};
use crate::cli::ReasonArgs;

fn print_note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Returns the note about a change that this process makes.
fn changed_by(args: &ReasonArgs, now: i64) -> ChangedBy {
    let variable = |name: &str| std::env::var(name).ok();
    let system = uname();
    let host = system.nodename().to_str().ok();
    let actor = actor(variable, getuid().as_raw(), host);
    ChangedBy::new(actor, args.reason.as_ref(), now)
}

fn print(text: &str) -> Result<(), ExitError> {
    output::print(&format!("{text}\n"))
}
