//! The kustomize component, part of the program: its container, its volumes, its default settings.
//!
//! There is no second description of the sidecar's container: `inject` and the webhook use this one.

use std::collections::BTreeMap;

use runtime::process::exit::ExitError;
use serde_json::Value;

use crate::object::{list, name_of};
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
    pub(crate) lifecycle: Value,
}

impl Component {
    /// Reads the component.
    ///
    /// # Errors
    /// Never with the files that the program was built with: a test reads them.
    pub(crate) fn read() -> Result<Self, ExitError> {
        Self::parsed().ok_or_else(|| ExitError::Software("the component cannot be read".to_owned()))
    }

    fn parsed() -> Option<Self> {
        let sidecar = first(SIDECAR)?;
        let pod = sidecar.pointer("/spec/template/spec")?;
        let kustomization = first(SETTINGS)?;
        Some(Self {
            container: pod.pointer("/initContainers/0")?.clone(),
            volumes: pod.get("volumes")?.as_array()?.clone(),
            settings: literals(&kustomization, 0)?,
            of_tasks: literals(&kustomization, 1)?,
            lifecycle: first(LIFECYCLE)?.pointer("/1/value")?.clone(),
        })
    }

    /// Returns the port that the sidecar listens on (`sidecar`), or its admin port (`sidecar-admin`).
    pub(crate) fn port(&self, name: &str) -> u16 {
        let mut ports = self.ports().into_iter();
        let found = ports.find(|(other, _)| *other == name);
        found.map_or(0, |(_, port)| port)
    }

    /// Returns names and numbers of both ports.
    pub(crate) fn ports(&self) -> Vec<(String, u16)> {
        let numbered = |port: &Value| {
            let number = port.get("containerPort")?.as_u64()?;
            Some((name_of(port).to_owned(), u16::try_from(number).ok()?))
        };
        list(self.container.get("ports"))
            .filter_map(numbered)
            .collect()
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

    #[test]
    fn the_component_is_complete() {
        let component = Component::read().unwrap();
        assert_eq!(
            (component.port("sidecar"), component.port("sidecar-admin")),
            (18080, 18081)
        );
        assert_eq!(component.volumes.len(), 2);
        assert_eq!(
            component.lifecycle.pointer("/preStop/sleep/seconds"),
            Some(&15.into())
        );
        assert_eq!(component.of_tasks.get("POSTERN_LAME_DUCK").unwrap(), "0");
        assert_eq!(component.settings.get("POSTERN_ISSUER").unwrap(), "auth");
    }
}
