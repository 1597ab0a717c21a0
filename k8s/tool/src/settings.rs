//! The settings of the sidecars that are put into pods: the component's, changed by the operator.

use std::collections::{BTreeMap, BTreeSet};

use runtime::process::exit::ExitError;
use wire::settings::pass_list;

use crate::annotations::PREFIX;
use crate::component::Component;
use crate::resources;

pub(crate) const AUTH_SERVER: &str = "POSTERN_AUTH_SERVER";
pub(crate) const APP_SECRET_FILE: &str = "POSTERN_APP_SECRET_FILE";
pub(crate) const UPSTREAM: &str = "POSTERN_UPSTREAM";
pub(crate) const PROBES: &str = "POSTERN_PROBES";
/// Requests and connections at a time.
pub(crate) const BOUNDS: [&str; 2] = ["POSTERN_MAX_REQUESTS", "POSTERN_MAX_CONNECTIONS"];
pub(crate) const APP_NAME: &str = "POSTERN_APP_NAME";
pub(crate) const PUBLIC_PATH: &str = "POSTERN_PUBLIC_PATH";
/// Sources of the key that need no application.
const OTHER_KEY_SOURCES: [&str; 4] = [
    "POSTERN_JWKS_URL",
    "POSTERN_JWKS_FILE",
    "POSTERN_PUBLIC_KEY_FILE",
    "POSTERN_ISSUER_URL",
];

/// Variables that no operator sets for all sidecars.
const OF_EACH_POD: [&str; 4] = [UPSTREAM, "POSTERN_LISTEN", "POSTERN_ADMIN_LISTEN", PROBES];

/// The name of an image without its registry and tag.
const IMAGE: &str = "localhost/postern/sidecar";

/// The operator's part of every sidecar.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) component: Component,
    pub(crate) image: String,
    /// By variable; the component's and the operator's.
    pub(crate) variables: BTreeMap<String, String>,
    /// The Secret of pods without an annotation.
    pub(crate) secret: Option<String>,
    /// The quantities of pods without an annotation, by its name.
    pub(crate) resources: BTreeMap<String, String>,
    /// Requests and connections at a time follow from the memory.
    pub(crate) follows_memory: bool,
}

impl Settings {
    /// Combines the component with variables; an empty value takes the component's away.
    ///
    /// # Errors
    /// [`ExitError::Usage`] for a variable of each pod, and for two sources of the key.
    pub(crate) fn new(
        image: Option<String>,
        pairs: &[(String, String)],
        secret: Option<String>,
    ) -> Result<Self, ExitError> {
        let component = Component::read()?;
        let mut variables = component.settings.clone();
        let mut set = BTreeSet::new();
        for (name, value) in pairs {
            if OF_EACH_POD.contains(&name.as_str()) {
                return Err(ExitError::Usage(format!(
                    "--set {name}: follows from ports and probes of each pod"
                )));
            }
            if name == PUBLIC_PATH && !value.is_empty() {
                // An unfinished list would go on in a pod's.
                pass_list(value)
                    .map_err(|error| ExitError::Usage(format!("--set {name}: {error}")))?;
            }
            if value.is_empty() {
                variables.remove(name);
            } else {
                variables.insert(name.clone(), value.clone());
                set.insert(name.as_str());
            }
        }
        let other = OTHER_KEY_SOURCES.iter().find(|name| set.contains(*name));
        if let Some(other) = other {
            if set.contains(AUTH_SERVER) {
                return Err(ExitError::Usage(format!(
                    "--set: {AUTH_SERVER} and {other} are two sources of the key"
                )));
            }
            variables.remove(AUTH_SERVER);
            variables.remove(APP_SECRET_FILE);
        }
        let follows_memory = BOUNDS.iter().all(|name| !set.contains(name));
        let image = image.unwrap_or_else(|| format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION")));
        Ok(Self {
            component,
            image,
            variables,
            secret,
            resources: BTreeMap::new(),
            follows_memory,
        })
    }

    /// Adds resources, such as `memory-limit=512Mi`.
    ///
    /// # Errors
    /// [`ExitError::Usage`] for another name, and for what is no quantity.
    pub(crate) fn with_resources(mut self, pairs: &[String]) -> Result<Self, ExitError> {
        for pair in pairs {
            let rejected = |why: String| ExitError::Usage(format!("--resources '{pair}': {why}"));
            let (name, quantity) = pair.split_once('=').unwrap_or((pair, ""));
            let annotation = format!("{PREFIX}{name}");
            if !resources::MEMBERS
                .iter()
                .any(|(known, ..)| *known == annotation)
            {
                return Err(rejected("expected cpu-request, cpu-limit, memory-request or memory-limit, and a quantity".to_owned()));
            }
            if !quantity.is_empty() {
                resources::check(quantity).map_err(rejected)?;
            }
            self.resources.insert(annotation, quantity.to_owned());
        }
        Ok(self)
    }
}
