//! The kustomize component, part of the program: its container, its volumes, its default settings.
//!
//! There is no second description of the sidecar's container: `inject` and the webhook use this one.

use std::collections::BTreeMap;

use postern_process::exit::ExitError;
use serde_json::Value;

use crate::manifest::object::list;
use crate::manifest::original::put;
use crate::yaml::documents;

const SIDECAR: &str = include_str!("../../../components/sidecar/sidecar.yaml");
const SETTINGS: &str = include_str!("../../../components/sidecar/kustomization.yaml");
const LIFECYCLE: &str = include_str!("../../../components/sidecar/service-outlives-drain.yaml");

/// The additions of the component to a pod.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    /// The sidecar, without the tag of its image.
    pub(crate) container: Value,
    pub(crate) volumes: Vec<Value>,
    /// The settings of every sidecar, by variable.
    pub(crate) settings: BTreeMap<String, String>,
    /// The further settings of a sidecar beside a task that ends by itself; they rank above `settings`.
    pub(crate) task_variables: BTreeMap<String, String>,
    /// The hook by which the service outlives the drain.
    pub(crate) hook: Value,
}

impl Component {
    /// Reads the files that the program was built with.
    ///
    /// # Errors
    /// None for the files in this program: a test reads them too.
    pub(crate) fn read() -> Result<Self, ExitError> {
        let pod = &first(SIDECAR)?["spec"]["template"]["spec"];
        let kustomization = first(SETTINGS)?;
        Ok(Self {
            container: pod["initContainers"][0].clone(),
            volumes: list(&pod["volumes"]).cloned().collect(),
            settings: literals(&kustomization, 0),
            task_variables: literals(&kustomization, 1),
            hook: first(LIFECYCLE)?[1]["value"]["preStop"].clone(),
        })
    }
}

/// Sets the user id of a container; an empty one leaves it to the cluster, as OpenShift demands.
///
/// # Errors
/// For a text that is no user id, and for the id of root.
pub(crate) fn set_user(container: &mut Value, text: &str) -> Result<(), String> {
    let id = match text.parse::<i32>() {
        Ok(id) if id > 0 => id.into(),
        _ if text.is_empty() => Value::Null,
        _ => return Err(format!("{text:?} is no user id above 0")),
    };
    put(container, "/securityContext/runAsUser", id)
}

fn first(text: &str) -> Result<Value, ExitError> {
    Ok(documents("component", text)?
        .into_iter()
        .map(|each| each.value)
        .next()
        .unwrap_or_default())
}

/// Returns the settings of a generated ConfigMap.
fn literals(kustomization: &Value, number: usize) -> BTreeMap<String, String> {
    list(&kustomization["configMapGenerator"][number]["literals"])
        .filter_map(|literal| literal.as_str()?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
