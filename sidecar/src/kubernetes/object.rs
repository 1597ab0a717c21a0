//! The parts of Kubernetes objects that concern pods: names, labels, the description of a pod.

use serde_json::{Map, Value};

use super::annotations::SIDECAR;

/// One object, alone in its document or an item of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Object<'v> {
    value: &'v Value,
}

/// The description of a pod, of a workload or by itself.
#[derive(Debug, Clone)]
pub(crate) struct PodView<'v> {
    /// The pointer to the description in its object; empty for a Pod.
    pub(crate) path: String,
    value: &'v Value,
}

/// Places of a pod's description, by the shape of the object: workloads of operators have it too.
const TEMPLATES: [&str; 2] = ["/spec/jobTemplate/spec/template", "/spec/template"];

impl<'v> Object<'v> {
    pub(crate) fn new(value: &'v Value) -> Self {
        Self { value }
    }

    pub(crate) fn kind(self) -> &'v str {
        text(self.value, "/kind")
    }

    /// Returns the namespace; empty where the object leaves it to the command line.
    pub(crate) fn namespace(self) -> &'v str {
        text(self.value, "/metadata/namespace")
    }

    pub(crate) fn name(self) -> &'v str {
        match text(self.value, "/metadata/name") {
            "" => text(self.value, "/metadata/generateName"),
            name => name,
        }
    }

    /// Returns kind, namespace and name, as the operator finds it.
    pub(crate) fn described(self) -> String {
        let kind = self.kind();
        match (self.namespace(), self.name()) {
            ("", name) => format!("{kind} {name}"),
            (namespace, name) => format!("{kind} {namespace}/{name}"),
        }
    }

    pub(crate) fn value(self) -> &'v Value {
        self.value
    }

    pub(crate) fn label(self, name: &str) -> Option<&'v str> {
        entry(self.value, "labels", name)
    }

    pub(crate) fn annotation(self, name: &str) -> Option<&'v str> {
        entry(self.value, "annotations", name)
    }

    /// Returns the pod that the object is, or the one it describes.
    pub(crate) fn pod(self) -> Option<PodView<'v>> {
        if self.kind() == "Pod" {
            return Some(PodView {
                path: String::new(),
                value: self.value,
            });
        }
        TEMPLATES.into_iter().find_map(|path| {
            let value = self.value.pointer(path)?;
            value.pointer("/spec/containers")?.as_array()?;
            Some(PodView {
                path: path.to_owned(),
                value,
            })
        })
    }

    /// Returns true if the label is on the object or on its pods.
    pub(crate) fn wants_sidecar(self) -> bool {
        let pod = self.pod();
        self.label(SIDECAR) == Some("true")
            || pod.is_some_and(|pod| pod.label(SIDECAR) == Some("true"))
    }
}

impl<'v> PodView<'v> {
    /// Stands for pods that are not known: it has neither labels nor ports.
    pub(crate) fn of_nothing(nothing: &'v Value) -> Self {
        Self {
            path: String::new(),
            value: nothing,
        }
    }

    /// Returns the same pod as a part of an object.
    pub(crate) fn placed_at(self, path: &str) -> Self {
        Self {
            path: path.to_owned(),
            ..self
        }
    }

    pub(crate) fn value(&self) -> &'v Value {
        self.value
    }

    pub(crate) fn label(&self, name: &str) -> Option<&'v str> {
        entry(self.value, "labels", name)
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&'v str> {
        entry(self.value, "annotations", name)
    }

    pub(crate) fn labels(&self) -> Option<&'v Map<String, Value>> {
        self.value.pointer("/metadata/labels")?.as_object()
    }

    /// Returns a member of the pod's specification.
    pub(crate) fn spec(&self, name: &str) -> Option<&'v Value> {
        self.value.get("spec")?.get(name)
    }

    pub(crate) fn containers(&self) -> impl Iterator<Item = &'v Value> + use<'v> {
        list(self.spec("containers"))
    }

    pub(crate) fn init_containers(&self) -> impl Iterator<Item = &'v Value> + use<'v> {
        list(self.spec("initContainers"))
    }

    /// Returns the sidecar: the container of that name with a port of that name.
    pub(crate) fn sidecar(&self) -> Option<&'v Value> {
        self.init_containers()
            .chain(self.containers())
            .find(|each| {
                name_of(each) == "sidecar"
                    && list(each.get("ports")).any(|port| name_of(port) == "sidecar")
            })
    }

    /// Returns the containers beside the sidecar that serve as long as the pod lives.
    pub(crate) fn others(&self) -> impl Iterator<Item = &'v Value> + use<'v> {
        let sidecar = self.sidecar();
        let native = self
            .init_containers()
            .filter(|each| each.get("restartPolicy").is_some());
        self.containers()
            .chain(native)
            .filter(move |each| sidecar.is_none_or(|sidecar| !std::ptr::eq(sidecar, *each)))
    }

    /// Returns true for a pod whose containers end by themselves.
    pub(crate) fn is_task(&self) -> bool {
        let policy = self.spec("restartPolicy").and_then(Value::as_str);
        policy.is_some_and(|policy| policy != "Always")
    }
}

/// Returns the objects of a document, each with its pointer: of a list its items.
pub(crate) fn objects(document: &Value) -> Vec<(String, Object<'_>)> {
    let kind = text(document, "/kind");
    let items = document.get("items").and_then(Value::as_array);
    match items.filter(|_| kind.ends_with("List")) {
        Some(items) => items
            .iter()
            .enumerate()
            .map(|(number, item)| (format!("/items/{number}"), Object::new(item)))
            .collect(),
        None if document.is_object() => vec![(String::new(), Object::new(document))],
        None => Vec::new(),
    }
}

/// Returns true for objects that may be in one namespace: where one leaves it to the command line,
/// that may be the other's.
pub(crate) fn share_namespace(one: Object<'_>, other: Object<'_>) -> bool {
    let (one, other) = (one.namespace(), other.namespace());
    one == other || one.is_empty() || other.is_empty()
}

/// Returns the items of a list; none where it is missing.
pub(crate) fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

pub(crate) fn name_of(value: &Value) -> &str {
    text(value, "/name")
}

/// Returns a text; empty where it is missing.
pub(crate) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn entry<'v>(value: &'v Value, map: &str, name: &str) -> Option<&'v str> {
    value.get("metadata")?.get(map)?.get(name)?.as_str()
}
