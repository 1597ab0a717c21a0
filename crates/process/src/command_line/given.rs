//! The settings that are not defaults of the program, for an operator who has not started it.

use toml::Table;

use super::serialize::redact_urls;
use super::sources::Sources;
use super::{WithFile, settings};

/// Stands for the value of a secret, and of a setting that is not printed.
const SET: &str = "(set)";

/// Returns the settings that the command line, a variable, the file or a default of an image gives,
/// in the form of the file, with each source as a comment. The values come from `in_force`.
#[must_use]
pub fn given<C: WithFile>(in_force: &Table) -> String {
    match Sources::from_process::<C>() {
        Some(sources) => given_by(&sources, C::KEYS, in_force),
        None => String::new(),
    }
}

pub(super) fn given_by(sources: &Sources, keys: &[&str], in_force: &Table) -> String {
    let mut text = String::new();
    let mut add = |name: &str, is_secret: bool, source: String| {
        let mut value = match in_force.get(name) {
            Some(value) if !is_secret => value.clone(),
            _ => SET.into(),
        };
        redact_urls(&mut value);
        let setting = Table::from_iter([(name.to_owned(), value)]).to_string();
        text += &format!("{}  # {source}\n", setting.trim_end());
    };
    for setting in settings(&sources.command) {
        if let (Some(name), Some(source)) = (setting.get_long(), sources.source(setting)) {
            add(name, setting.is_hide_env_values_set(), source);
        }
    }
    for key in keys.iter().filter(|key| sources.is_in_file(key)) {
        // A key that is a flag too was added above.
        if settings(&sources.command).all(|it| it.get_long() != Some(key)) {
            add(key, false, "the file".to_owned());
        }
    }
    text
}
