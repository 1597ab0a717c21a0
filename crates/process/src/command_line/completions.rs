//! Shell scripts that complete the commands and flags of a program.

use clap::Args;
use clap_complete::{Shell, generate};

use super::{WithFile, command};
use crate::exit::ExitError;
use crate::output::print;

/// The operand of `completions`, alike in both programs.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell that reads the script
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script for the shell.
///
/// # Errors
/// As of [`print`].
pub fn print_completions<C: WithFile>(args: &CompletionsArgs) -> Result<(), ExitError> {
    let mut command = command::<C>();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(args.shell, &mut command, name.as_str(), &mut script);
    print(&with_one_name(&String::from_utf8_lossy(&script), &name))
}

/// Spells a program's name with a hyphen in one way: bash scripts of `clap_complete` 4.6 have two
/// and complete no flag of a subcommand (<https://github.com/clap-rs/clap/issues/6421>).
fn with_one_name(script: &str, name: &str) -> String {
    script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__"))
}
