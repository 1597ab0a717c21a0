//! The settings of the sidecars that are put into pods: the component's settings, changed by the operator.

use std::collections::{BTreeMap, BTreeSet};

use postern_contract::settings::pass_list;
use postern_process::command_line::alike;
use postern_process::exit::ExitError;
use serde_json::Value;

use crate::cli::SidecarsArgs;
use crate::container::component::{Component, set_user};
use crate::container::resources;
use crate::manifest::names::PREFIX;
use crate::manifest::object::Object;

pub(crate) const AUTH_SERVER: &str = "POSTERN_AUTH_SERVER";
/// Sources of the key; the first is the one that needs an application.
const KEY_SOURCES: [&str; 3] = [AUTH_SERVER, "POSTERN_JWKS", ISSUER_URL];
const ISSUER_URL: &str = "POSTERN_ISSUER_URL";
const ISSUER: &str = "POSTERN_ISSUER";
pub(crate) const APP_SECRET_FILE: &str = "POSTERN_APP_SECRET_FILE";
pub(crate) const UPSTREAM: &str = "POSTERN_UPSTREAM";
pub(crate) const PROBES: &str = "POSTERN_PROBES";
/// The bounds of requests and connections at a time.
pub(crate) const BOUNDS: [&str; 2] = ["POSTERN_MAX_REQUESTS", "POSTERN_MAX_CONNECTIONS"];
pub(crate) const APP_ID: &str = "POSTERN_APP_ID";
pub(crate) const APP_NAME: &str = "POSTERN_APP_NAME";
pub(crate) const PUBLIC_PATH: &str = "POSTERN_PUBLIC_PATH";

/// Variables that no operator sets for all sidecars.
const OF_EACH_POD: [&str; 4] = [UPSTREAM, "POSTERN_LISTEN", "POSTERN_ADMIN_LISTEN", PROBES];

/// The sidecar's variables that hold no secret, one a line: a test compares them with its help.
const KNOWN: &str = include_str!("../../sidecar_variables.txt");

/// The name of an image without its registry and tag.
const IMAGE: &str = "localhost/postern/sidecar";

/// The operator's part of every sidecar.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) component: Component,
    pub(crate) image: String,
    /// The component's and the operator's settings, by variable.
    pub(crate) variables: BTreeMap<String, String>,
    /// The quantities of pods without a resource annotation, by the name of the annotation.
    pub(crate) resources: BTreeMap<String, String>,
    /// True if the bounds of requests and connections follow from the memory limit.
    pub(crate) follows_memory: bool,
}

impl Settings {
    /// Combines the component with the operator's flags; an empty value removes the component's setting.
    ///
    /// # Errors
    /// [`ExitError::Usage`] for a variable that is no setting of all sidecars, for two sources of the
    /// key, and for what is no image, user id or resource.
    pub(crate) fn new(args: &SidecarsArgs) -> Result<Self, ExitError> {
        let mut component = Component::read()?;
        if let Some(text) = &args.run_as_user {
            set_user(&mut component.container, text)
                .map_err(|why| ExitError::Usage(format!("--run-as-user: {why}")))?;
        }
        let mut variables = component.settings.clone();
        let set = set_variables(&mut variables, &args.set)?;
        replace_key_source(&mut variables, &set)?;
        Ok(Self {
            image: image(args.image.as_deref())?,
            variables,
            resources: quantities(&args.resources, &component.container)?,
            follows_memory: BOUNDS.iter().all(|name| !set.contains(name)),
            component,
        })
    }

    /// Returns the names of the headers about the user. Every sidecar sets the first one, whatever the
    /// configured name is.
    pub(crate) fn user_headers(&self) -> Vec<&str> {
        let value = |name| self.variables.get(name).map_or("", String::as_str);
        let mut names = vec!["X-Current-User", value("POSTERN_USER_HEADER")];
        for pair in value("POSTERN_CLAIM_HEADER").split(',') {
            if let Some((name, _)) = pair.split_once('=') {
                names.push(name.trim());
            }
        }
        names
    }
}

/// Sets the operator's variables, and returns the names of those that have a value.
///
/// # Errors
/// For a variable that is no setting of all sidecars.
fn set_variables<'a>(
    variables: &mut BTreeMap<String, String>,
    pairs: &'a [String],
) -> Result<BTreeSet<&'a str>, ExitError> {
    let mut set = BTreeSet::new();
    for pair in pairs {
        let (name, value) =
            variable(pair).map_err(|why| ExitError::Usage(format!("--set {why}")))?;
        // An empty value removes the component's setting, and is no source of the key.
        if value.is_empty() {
            variables.remove(name);
        } else {
            variables.insert(name.to_owned(), value.to_owned());
            set.insert(name);
        }
    }
    Ok(set)
}

/// Returns the name and the value of a variable.
fn variable(pair: &str) -> Result<(&str, &str), String> {
    let (name, value) = pair
        .split_once('=')
        .ok_or_else(|| format!("'{pair}': expected POSTERN_NAME=VALUE"))?;
    if OF_EACH_POD.contains(&name) {
        return Err(format!("{name}: follows from ports and probes of each pod"));
    }
    if !KNOWN.lines().any(|known| known == name) {
        let hint = match alike(name, KNOWN.lines()) {
            Some(known) => format!("; did you mean {known}?"),
            None => String::new(),
        };
        return Err(format!(
            "{name}: is no setting of the sidecar, or a secret one{hint}"
        ));
    }
    if name == PUBLIC_PATH && !value.is_empty() {
        // A pod's annotation is appended to this list: an unfinished pattern would continue there.
        pass_list(value).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok((name, value))
}

/// Removes the component's settings that do not fit the operator's source of the key.
///
/// # Errors
/// For two sources of the key.
fn replace_key_source(
    variables: &mut BTreeMap<String, String>,
    set: &BTreeSet<&str>,
) -> Result<(), ExitError> {
    let mut sources = KEY_SOURCES.into_iter().filter(|name| set.contains(name));
    match (sources.next(), sources.next()) {
        (Some(one), Some(other)) => {
            return Err(ExitError::Usage(format!(
                "--set: {one} and {other} are two sources of the key"
            )));
        }
        // Another source of the key replaces the component's auth server, whose secret no pod needs then.
        (Some(source), None) if source != AUTH_SERVER => {
            variables.remove(AUTH_SERVER);
            variables.remove(APP_SECRET_FILE);
        }
        _ => {}
    }
    // The address of the issuer is its `iss`, so the component's `iss` would be wrong.
    if set.contains(ISSUER_URL) && !set.contains(ISSUER) {
        variables.remove(ISSUER);
    }
    Ok(())
}

/// Returns the image of the operator, or the one of this version.
fn image(given: Option<&str>) -> Result<String, ExitError> {
    match given {
        None => Ok(format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION"))),
        Some(name) if is_image(name) => Ok(name.to_owned()),
        Some(other) => Err(ExitError::Usage(format!(
            "--image {other:?}: is no name of an image, as in registry.example.com/postern/sidecar:1.0.0"
        ))),
    }
}

/// Returns true for a text that may be the name of an image: no node of Kubernetes accepts other characters, or
/// an empty part, which the `//` of a URL makes.
fn is_image(name: &str) -> bool {
    name.bytes().all(may_be_in_image) && name.split('/').all(|part| !part.is_empty())
}

fn may_be_in_image(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-+/:@[]".contains(&byte)
}

/// Returns the operator's quantities of resources, by annotation; `container` is the component's.
///
/// # Errors
/// For what is no resource, and for resources that no sidecar can have together.
fn quantities(pairs: &[String], container: &Value) -> Result<BTreeMap<String, String>, ExitError> {
    let mut quantities = BTreeMap::new();
    for pair in pairs {
        let (annotation, quantity) = resource(pair)
            .map_err(|why| ExitError::Usage(format!("--resources '{pair}': {why}")))?;
        quantities.insert(annotation, quantity);
    }
    // Check the resources once, with no pod: an error here is the operator's, not the author's of a pod.
    let no_pod = Object(&Value::Null);
    resources::set(&mut container.clone(), no_pod, &quantities, true)
        .map_err(|why| ExitError::Usage(format!("--resources: {why}")))?;
    Ok(quantities)
}

/// Returns the annotation and the quantity of a resource, such as `memory-limit=512Mi`.
fn resource(pair: &str) -> Result<(String, String), String> {
    let (name, quantity) = pair.split_once('=').unwrap_or((pair, ""));
    let annotation = format!("{PREFIX}{name}");
    let mut known = resources::MEMBERS.iter();
    if !known.any(|(known, ..)| *known == annotation) {
        return Err(
            "expected cpu-request, cpu-limit, memory-request or memory-limit, and a quantity"
                .to_owned(),
        );
    }
    // An empty quantity removes the component's, so it has no number to check.
    if !quantity.is_empty() {
        resources::quantity(quantity)?;
    }
    Ok((annotation, quantity.to_owned()))
}
