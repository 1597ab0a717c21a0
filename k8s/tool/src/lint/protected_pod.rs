//! A pod with a sidecar, among the objects of the input.

use serde_json::Value;

use super::{Finding, Level, Located, Rule};
use crate::object::{Object, PodView, list, name_of, share_namespace, text};
use crate::ports;

/// A pod with its sidecar, its object and the whole input.
pub(super) struct ProtectedPod<'v, 'i> {
    /// The object that has the pod.
    pub(super) owner: &'i Located<'v>,
    pub(super) pod: PodView<'v>,
    pub(super) sidecar: &'v Value,
    pub(super) input: &'i [Located<'v>],
}

impl<'v> ProtectedPod<'v, '_> {
    /// Creates a finding about the pod.
    pub(super) fn finding(&self, level: Level, rule: Rule, why: impl Into<String>) -> Finding {
        self.owner.finding(level, rule, why)
    }

    /// Returns the port of the sidecar.
    pub(super) fn sidecar_port(&self) -> Option<u16> {
        let mut ports = ports::of_container(self.sidecar);
        let named = ports.find(|(name, _)| *name == "sidecar");
        named.map(|(_, port)| port)
    }

    /// Returns an object of the pod's namespace.
    pub(super) fn known(&self, kind: &str, name: &str) -> Option<Object<'v>> {
        let mut objects = self.input.iter().map(|other| other.object);
        objects.find(|other| {
            other.kind() == kind
                && other.name() == name
                && share_namespace(*other, self.owner.object)
        })
    }

    /// Returns true if the input holds every ConfigMap of the sidecar's settings.
    pub(super) fn has_all_settings(&self) -> bool {
        self.config_maps()
            .all(|name| self.known("ConfigMap", name).is_some())
    }

    /// Returns the ConfigMaps of the sidecar's settings; an empty name for another source.
    pub(super) fn config_maps(&self) -> impl DoubleEndedIterator<Item = &'v str> + use<'v> {
        let sources: Vec<&Value> = list(self.sidecar.get("envFrom")).collect();
        let names = sources.into_iter();
        names.map(|source| text(source, "/configMapRef/name"))
    }

    /// Returns a variable that the sidecar sets to a text, or to a label of its pod, or takes from a
    /// ConfigMap of the input: of several the last one counts.
    pub(super) fn variable(&self, name: &str) -> Option<&'v str> {
        let variables: Vec<&Value> = list(self.sidecar.get("env")).collect();
        let mut last_first = variables.into_iter().rev();
        let Some(found) = last_first.find(|variable| name_of(variable) == name) else {
            return self.config_maps().rev().find_map(|map| {
                let map = self.known("ConfigMap", map)?;
                map.value().get("data")?.get(name)?.as_str()
            });
        };
        let label = text(found, "/valueFrom/fieldRef/fieldPath")
            .strip_prefix("metadata.labels['")
            .and_then(|label| label.strip_suffix("']"));
        match label {
            Some(label) => self.pod.label(label),
            None => found.get("value")?.as_str(),
        }
    }
}
