//! The kustomize component, part of the program: its container, its volumes, its default settings.
//!
//! There is no second description of the sidecar's container: `inject` and the webhook use this one.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::yaml::documents;

const SIDECAR: &str = include_str!("../../components/sidecar/sidecar.yaml");
const SETTINGS: &str = include_str!("../../components/sidecar/kustomization.yaml");
const LIFECYCLE: &str = include_str!("../../components/sidecar/service-outlives-drain.yaml");

/// The additions of the component to a pod.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    /// The sidecar, without the tag of its image.
    pub(crate) container: Value,
    pub(crate) volumes: Vec<Value>,
    /// The settings of every sidecar, by variable.
    pub(crate) settings: BTreeMap<String, String>,
    /// Those of a sidecar beside a task that ends by itself, above the others.
    pub(crate) of_tasks: BTreeMap<String, String>,
    /// The hook by which the service outlives the drain.
    pub(crate) hook: Value,
}

impl Component {
    /// Reads the component; always `Some` with the files that the program was built with.
    pub(crate) fn read() -> Option<Self> {
        let sidecar = first(SIDECAR)?;
        let pod = sidecar.pointer("/spec/template/spec")?;
        let kustomization = first(SETTINGS)?;
        Some(Self {
            container: pod.pointer("/initContainers/0")?.clone(),
            volumes: pod.get("volumes")?.as_array()?.clone(),
            settings: literals(&kustomization, 0)?,
            of_tasks: literals(&kustomization, 1)?,
            hook: first(LIFECYCLE)?.pointer("/1/value/preStop")?.clone(),
        })
    }
}

fn first(text: &str) -> Option<Value> {
    Some(documents("", text).ok()?.first()?.value.clone())
}

/// Returns the settings of a generated ConfigMap.
fn literals(kustomization: &Value, number: usize) -> Option<BTreeMap<String, String>> {
    let literals = kustomization
        .get("configMapGenerator")?
        .get(number)?
        .get("literals")?;
    let literals = literals.as_array()?.iter().filter_map(Value::as_str);
    let pairs = literals.filter_map(|literal| literal.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some(pairs.collect())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::ports::{Ports, of_container};

    #[test]
    fn the_component_is_complete() {
        let component = Component::read().unwrap();
        let ports: Vec<_> = of_container(&component.container).collect();
        let own = Ports::USUAL;
        assert_eq!(
            ports,
            [("sidecar", own.sidecar), ("sidecar-admin", own.admin)]
        );
        assert_eq!(component.volumes.len(), 2);
        assert_eq!(component.hook.pointer("/sleep/seconds"), Some(&15.into()));
        assert_eq!(component.of_tasks.get("POSTERN_LAME_DUCK").unwrap(), "0");
        assert_eq!(component.settings.get("POSTERN_ISSUER").unwrap(), "auth");
    }
}
