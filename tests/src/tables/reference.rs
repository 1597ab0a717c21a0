//! The documents about a program's settings, written from the definition of its command line: its
//! tables in `docs/configuration.md`, and the JSON schema of its file.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use postern_process::command_line::seconds::Seconds;
use postern_process::command_line::settings;
use serde_json::{Map, Value, json};

use crate::actors::programs::repository;

/// The variable that rewrites documents instead of comparing them.
pub const UPDATE: &str = "POSTERN_UPDATE_DOCS";
const CONFIGURATION: &str = "docs/configuration.md";
const END: &str = "<!-- end -->";

/// Compares the tables of a program with its command line, or writes them.
///
/// # Panics
/// When they differ, or the page has no place for them.
pub fn hold_tables(command: &Command) {
    let name = command.get_name();
    let path = repository().join(CONFIGURATION);
    // The programs' tests run at once, and write one page.
    let lock = File::open(&path).expect(CONFIGURATION);
    lock.lock().expect("a lock");
    let text = fs::read_to_string(&path).expect(CONFIGURATION);
    let start = format!("<!-- generated: {name} -->\n");
    let (before, rest) = text.split_once(&start).expect(&start);
    let (_, after) = rest.split_once(END).expect(END);
    let expected = format!("{before}{start}{}{END}{after}", tables(command));
    hold(&path, &expected);
}

/// Compares a file with its generated text, or writes it.
///
/// # Panics
/// When they differ.
pub fn hold(path: &Path, expected: &str) {
    if std::env::var_os(UPDATE).is_some() {
        fs::write(path, expected).expect("a document that can be written");
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let name = path.display();
    assert!(
        text == expected,
        "{name} is out of date: {UPDATE}=1 makes this test rewrite it"
    );
}

/// Compares `docs/schema/NAME.json` with a schema, or writes it.
///
/// # Panics
/// When they differ.
pub fn hold_schema(name: &str, schema: &Value) {
    let text = serde_json::to_string_pretty(schema).expect("JSON") + "\n";
    let path = repository().join(format!("docs/schema/{name}.json"));
    hold(&path, &text);
}

/// Returns the schema of a program's file: its settings, and what the file alone can say.
#[must_use]
pub fn schema(command: &Command, mut only: Value) -> Value {
    let serve = command.find_subcommand("serve").expect("serve");
    let mut properties = Map::new();
    for setting in settings(serve).filter(|setting| !setting.is_hide_env_values_set()) {
        properties.insert(name(setting).to_owned(), property(setting));
    }
    let of_file = only["properties"].take();
    for (name, of_file) in of_file.as_object().into_iter().flatten() {
        let either = match properties.remove(name) {
            Some(of_flag) => json!({"anyOf": [of_flag, of_file]}),
            None => of_file.clone(),
        };
        properties.insert(name.clone(), either);
    }
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("Settings of {} serve", command.get_name()),
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if let Some(definitions) = only.get("$defs") {
        schema["$defs"] = definitions.clone();
    }
    schema
}

fn property(setting: &Arg) -> Value {
    let words: Vec<String> = values(setting);
    let parsed = setting.get_value_parser().type_id();
    let is_number = [TypeId::of::<u32>(), TypeId::of::<usize>()]
        .iter()
        .any(|number| parsed == *number);
    let mut item = match words.is_empty() {
        _ if parsed == TypeId::of::<bool>() => json!({"enum": [true, false, "on", "off"]}),
        _ if parsed == TypeId::of::<Seconds>() => json!({"type": ["string", "integer"]}),
        _ if is_number => json!({"type": "integer", "minimum": 0}),
        true => json!({"type": "string"}),
        false => json!({"enum": words}),
    };
    if matches!(setting.get_action(), ArgAction::Append) {
        item = json!({"anyOf": [item, {"type": "array", "items": item}]});
    }
    item["description"] = setting
        .get_long_help()
        .or(setting.get_help())
        .map(ToString::to_string)
        .into();
    if let Some(default) = default(setting) {
        item["default"] = default.into();
    }
    item
}

/// Returns the settings of `serve` by their groups, and every command with its own options.
fn tables(command: &Command) -> String {
    let mut text = String::new();
    let mut described = BTreeSet::new();
    if let Some(serve) = command.find_subcommand("serve") {
        text += "| setting | default | |\n|---|---|---|\n";
        let mut group = None;
        for setting in settings(serve) {
            if group != setting.get_help_heading() {
                group = setting.get_help_heading();
                text += &format!("| **{}** | | |\n", group.unwrap_or_default());
            }
            let default = default(setting).map(|default| format!("`{default}`"));
            let default = default
                .filter(|default| default != "``")
                .unwrap_or_default();
            let (usage, help) = (usage(setting), help(setting));
            described.insert(format!("{usage} {help}"));
            text += &format!("| `{usage}` | {default} | {help} |\n");
        }
        text += "\n";
    }
    text += "| command | |\n|---|---|\n";
    for below in command.get_subcommands() {
        rows(below, command.get_name(), &mut described, &mut text);
    }
    text
}

fn rows(command: &Command, above: &str, described: &mut BTreeSet<String>, text: &mut String) {
    if command.get_name() == "help" {
        return;
    }
    let path = format!("{above} {}", command.get_name());
    if command.has_subcommands() {
        for below in command.get_subcommands() {
            rows(below, &path, described, text);
        }
        return;
    }
    let operands = command
        .get_positionals()
        .map(|operand| format!(" {operand}"));
    let operands: String = operands.collect();
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    *text += &format!("| `{path}{operands}` | {} |\n", cell(&about));
    let is_own = |option: &&Arg| {
        let is_visible = !option.is_hide_set() && option.get_long().is_some();
        is_visible && !["help", "version", "config"].contains(&option.get_id().as_str())
    };
    for option in command.get_opts().filter(is_own) {
        let (usage, help) = (usage(option), help(option));
        if described.insert(format!("{usage} {help}")) {
            *text += &format!("| `{usage}` | {help} |\n");
        }
    }
}

fn name(setting: &Arg) -> &str {
    setting.get_long().expect("a setting has a long name")
}

/// Returns the flag with its value.
fn usage(option: &Arg) -> String {
    let words = values(option);
    let value = match option.get_value_names() {
        _ if !option.get_action().takes_values() => String::new(),
        _ if !words.is_empty() => format!(" {}", words.join("\\|")),
        Some(names) => format!(" {}", names.join(" ").replace('|', "\\|")),
        None => String::new(),
    };
    format!("--{}{value}", name(option))
}

/// Returns the words that the option takes, if it takes no others and its help lists them.
fn values(option: &Arg) -> Vec<String> {
    if option.is_hide_possible_values_set() {
        return Vec::new();
    }
    let words = option.get_possible_values();
    let words = words.iter().map(|word| word.get_name().to_owned());
    words
        .filter(|word| word != "true" && word != "false")
        .collect()
}

fn default(setting: &Arg) -> Option<String> {
    let values: Vec<_> = setting
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// Returns the first paragraph of an option's help.
fn help(option: &Arg) -> String {
    cell(
        &option
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default(),
    )
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
