//! Former names of settings: hidden aliases of their flags. Each names the variable and the key of
//! the file too, and each use is reported.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use clap::{Arg, Parser};

use super::provenance::{Sources, with_sources};
use super::{command, settings, values_after, variable};

/// Returns a line for each former name on the command line, in the environment and in the file.
#[must_use]
pub fn former_names<C: Parser>() -> Vec<String> {
    with_sources::<C, _>(|settings, sources| sources.former_names(settings).into_iter().collect())
}

/// Returns the present name of a variable of `serve` by any of its names; `None` for a secret, and
/// for what is no setting.
#[must_use]
pub fn public_variable<C: Parser>(name: &str) -> Option<String> {
    let command = command::<C>();
    let mut settings = settings(command.find_subcommand("serve")?);
    let named = settings.find(|setting| has_variable(setting, name))?;
    let is_public = !named.is_hide_env_values_set();
    named.get_long().filter(|_| is_public).map(variable)
}

/// Returns true if the setting has the variable, under any of its names.
pub(super) fn has_variable(setting: &Arg, name: &str) -> bool {
    names(setting).any(|flag| variable(flag) == name)
}

/// Returns the names of a setting, the present one first.
pub(super) fn names(setting: &Arg) -> impl Iterator<Item = &str> {
    setting.get_long().into_iter().chain(former(setting))
}

fn former(setting: &Arg) -> impl Iterator<Item = &str> {
    setting.get_all_aliases().unwrap_or_default().into_iter()
}

impl Sources<'_> {
    /// Returns a line for each former name in use.
    pub(super) fn former_names(&self, settings: &[&Arg]) -> BTreeSet<String> {
        let named = settings.iter().flat_map(|setting| {
            let present = setting.get_long().unwrap_or_default();
            former(setting).flat_map(move |former| self.uses(former, present))
        });
        named.collect()
    }

    fn uses(&self, former: &str, present: &str) -> impl Iterator<Item = String> {
        let is_typed = !values_after(former, self.arguments).is_empty();
        let typed = is_typed.then(|| renamed(&format!("--{former}"), &format!("--{present}")));
        let [old, new] = [former, present].map(variable);
        let is_set = |name: &String| (self.is_set)(OsStr::new(name));
        let set = (is_set(&old) && !is_set(&new)).then(|| renamed(&old, &new));
        let file = self.file.filter(|file| file.has(former));
        let key = file.map(|file| {
            let file_name = file.path().display();
            renamed(
                &format!("`{former}` in {file_name}"),
                &format!("`{present}`"),
            )
        });
        typed.into_iter().chain(set).chain(key)
    }
}

fn renamed(former: &str, present: &str) -> String {
    format!("{former} is named {present} now; the next release knows only that")
}
