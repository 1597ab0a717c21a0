//! Settings that are on or off: one way to write them in flags, variables and files.

use std::any::TypeId;

use clap::{Arg, ArgAction, Command};

const ON: &str = "on";
const OFF: &str = "off";

/// Replaces clap's two kinds of booleans, of which one takes no value and the other `true` or
/// `false`. Flags of a single command, which are not settings, stay as they are.
pub(super) fn with_switches(command: Command) -> Command {
    // A switch before an operand would take the operand as its value.
    let has_operands = command.get_positionals().next().is_some();
    command
        .mut_args(|argument| match argument.get_env() {
            Some(_) if is_switch(&argument) => switched(argument).require_equals(has_operands),
            _ => argument,
        })
        .mut_subcommands(with_switches)
}

/// Returns true for the settings that are on or off.
pub(super) fn is_switch(argument: &Arg) -> bool {
    argument.get_value_parser().type_id() == TypeId::of::<bool>()
}

/// Returns true for a setting that a bare flag switches on.
pub(super) fn is_off_by_default(argument: &Arg) -> bool {
    is_switch(argument) && has_default(argument, OFF)
}

fn has_default(argument: &Arg, text: &str) -> bool {
    argument
        .get_default_values()
        .iter()
        .any(|value| value == text)
}

fn switched(argument: Arg) -> Arg {
    let is_on = has_default(&argument, "true");
    argument
        .action(ArgAction::Set)
        .num_args(0..=1)
        .default_missing_value(ON)
        .default_value(if is_on { ON } else { OFF })
        .hide_default_value(!is_on)
        .value_parser(parse)
        .value_name("on|off")
}

/// Parses the value of a switch.
pub(super) fn parse(text: &str) -> Result<bool, &'static str> {
    match text {
        ON | "true" | "1" => Ok(true),
        OFF | "false" | "0" => Ok(false),
        _ => Err("expected on or off"),
    }
}
