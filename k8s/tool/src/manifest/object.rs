//! The parts of Kubernetes objects that concern pods: names, labels, the description of a pod.

use serde_json::Value;

use crate::manifest::names::{ALL, ORIGINAL, PREFIX, SIDECAR};
use crate::yaml::Document;

/// A Kubernetes object, alone in its document or an item of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Object<'v>(pub(crate) &'v Value);

/// Kinds of probes, and the ends of their names.
pub(crate) const PROBES: [(&str, &str); 3] = [
    ("startupProbe", "startup"),
    ("readinessProbe", "readiness"),
    ("livenessProbe", "liveness"),
];

/// Actions of probes that go to a port.
const ACTIONS: [&str; 3] = ["httpGet", "tcpSocket", "grpc"];

/// Places of a pod's description, by the shape of the object: workloads of operators have these places too.
const TEMPLATES: [&str; 2] = ["/spec/jobTemplate/spec/template", "/spec/template"];

impl<'v> Object<'v> {
    pub(crate) fn kind(self) -> &'v str {
        text(self.0, "/kind")
    }

    /// Returns the namespace; empty where the object leaves it to the command line.
    pub(crate) fn namespace(self) -> &'v str {
        text(self.0, "/metadata/namespace")
    }

    pub(crate) fn name(self) -> &'v str {
        match text(self.0, "/metadata/name") {
            "" => text(self.0, "/metadata/generateName"),
            name => name,
        }
    }

    /// Returns kind, namespace and name, by which the operator finds the object.
    pub(crate) fn described(self) -> String {
        let (kind, name) = (self.kind(), self.name());
        match self.namespace() {
            "" => format!("{kind} {name}"),
            namespace => format!("{kind} {namespace}/{name}"),
        }
    }

    pub(crate) fn label(self, name: &str) -> Option<&'v str> {
        self.0["metadata"]["labels"][name].as_str()
    }

    pub(crate) fn annotation(self, name: &str) -> Option<&'v str> {
        self.0["metadata"]["annotations"][name].as_str()
    }

    /// Returns the annotations of this product.
    pub(crate) fn annotations(self) -> impl Iterator<Item = (&'v str, &'v str)> + use<'v> {
        ALL.into_iter()
            .filter_map(move |name| Some((name, self.annotation(name)?)))
    }

    /// Returns an annotation that looks like one of this product, and means nothing.
    pub(crate) fn unknown_annotation(self) -> Option<&'v str> {
        let mut names = self.0["metadata"]["annotations"]
            .as_object()?
            .keys()
            .map(String::as_str);
        names.find(|name| name.starts_with(PREFIX) && *name != ORIGINAL && !ALL.contains(name))
    }

    /// Returns the object itself if it is a pod, or the pod that it describes.
    pub(crate) fn pod(self) -> Option<Self> {
        self.0.pointer(self.pod_path()?).map(Self)
    }

    /// Returns the JSON pointer to the pod of [`Self::pod`].
    pub(crate) fn pod_path(self) -> Option<&'static str> {
        if self.kind() == "Pod" {
            return Some("");
        }
        TEMPLATES.into_iter().find(|path| {
            self.0
                .pointer(&format!("{path}/spec/containers"))
                .is_some_and(Value::is_array)
        })
    }

    /// Returns true for an object whose pods have a sidecar.
    pub(crate) fn is_protected(self) -> bool {
        self.pod().and_then(Object::sidecar).is_some()
    }

    /// Returns true if the label is on the object or on its pods.
    pub(crate) fn wants_sidecar(self) -> bool {
        self.sidecar_labels().any(|label| label == "true")
    }

    /// Rejects a value of the label that means nothing, such as `True`, and a label on an object that
    /// describes its pods in an unknown place.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn check(self) -> Result<(), String> {
        for object in [Some(self), self.pod()].into_iter().flatten() {
            object.reject_other_than_texts()?;
        }
        for label in self.sidecar_labels() {
            if !matches!(label, "true" | "false") {
                return Err(format!(
                    "the label {SIDECAR}: {label:?} is neither \"true\" nor \"false\""
                ));
            }
        }
        if !self.wants_sidecar() || self.pod().is_some() {
            return Ok(());
        }
        match path_of_containers(self.0) {
            Some(path) => Err(format!(
                "describes pods at {path}, which get no sidecar here: label these, for the webhook, and the object {SIDECAR}: \"false\""
            )),
            None => Ok(()),
        }
    }

    /// Rejects a label or an annotation of this product that is no text: it would count as absent.
    fn reject_other_than_texts(self) -> Result<(), String> {
        for kind in ["label", "annotation"] {
            let members = self.0["metadata"][format!("{kind}s")].as_object();
            for (name, value) in members.into_iter().flatten() {
                let what = match value {
                    _ if !name.starts_with(PREFIX) => continue,
                    Value::String(_) => continue,
                    Value::Null => "null",
                    Value::Bool(_) => "a boolean",
                    Value::Number(_) => "a number",
                    Value::Array(_) => "a list",
                    Value::Object(_) => "a map",
                };
                let text = value.to_string().replace('"', "");
                return Err(format!(
                    "the {kind} {name} is {what}, not a text: write it in quotes, \"{text:.40}\""
                ));
            }
        }
        Ok(())
    }

    fn sidecar_labels(self) -> impl Iterator<Item = &'v str> {
        [Some(self), self.pod()]
            .into_iter()
            .flatten()
            .filter_map(|object| object.label(SIDECAR))
    }
}

/// The parts of a pod.
impl<'v> Object<'v> {
    /// Returns a member of the specification; null where it is missing.
    pub(crate) fn spec(self, name: &str) -> &'v Value {
        &self.0["spec"][name]
    }

    pub(crate) fn containers(self) -> impl Iterator<Item = &'v Value> + use<'v> {
        list(self.spec("containers"))
    }

    pub(crate) fn init_containers(self) -> impl Iterator<Item = &'v Value> + use<'v> {
        list(self.spec("initContainers"))
    }

    /// Returns all containers, init containers too, with their pointers.
    pub(crate) fn containers_with_pointers(
        self,
    ) -> impl Iterator<Item = (String, &'v Value)> + use<'v> {
        let lists = ["containers", "initContainers"].into_iter();
        lists.flat_map(move |name| {
            let containers = list(self.spec(name)).enumerate();
            containers.map(move |(number, each)| (format!("/spec/{name}/{number}"), each))
        })
    }

    /// Returns the sidecar; the name alone is not enough: a container of another product may have it.
    pub(crate) fn sidecar(self) -> Option<&'v Value> {
        self.serving().find(|each| {
            name_of(each) == "sidecar"
                && text(each, "/args/0") == "serve"
                && text(each, "/readinessProbe/httpGet/path") == "/readyz"
                && list(&each["ports"]).any(|port| name_of(port) == "sidecar")
        })
    }

    /// Returns kinds and names of the objects that the sidecar reads.
    pub(crate) fn needed(self) -> Vec<(&'static str, &'v str)> {
        let mut needed = Vec::new();
        for source in list(&self.sidecar().unwrap_or(&Value::Null)["envFrom"]) {
            needed.push(("ConfigMap", text(source, "/configMapRef/name")));
        }
        for volume in list(self.spec("volumes")) {
            if name_of(volume).starts_with("postern-") {
                needed.push(("Secret", text(volume, "/secret/secretName")));
                needed.push(("ConfigMap", text(volume, "/configMap/name")));
            }
        }
        needed.retain(|(_, name)| !name.is_empty());
        needed
    }

    /// Returns the containers beside the sidecar that serve as long as the pod lives.
    pub(crate) fn others(self) -> impl Iterator<Item = &'v Value> + use<'v> {
        let sidecar = self.sidecar();
        self.serving().filter(move |each| match sidecar {
            // Compared by address: another container may have the same text.
            Some(sidecar) => !std::ptr::eq(sidecar, *each),
            None => true,
        })
    }

    /// Returns the containers that run as long as the pod: init containers only where they stay.
    fn serving(self) -> impl Iterator<Item = &'v Value> + use<'v> {
        let stays = |each: &&Value| text(each, "/restartPolicy") == "Always";
        self.containers()
            .chain(self.init_containers().filter(stays))
    }

    /// Returns true for a pod whose containers end by themselves.
    pub(crate) fn is_task(self) -> bool {
        let policy = self.spec("restartPolicy");
        policy.is_string() && policy != "Always"
    }
}

/// Returns the pointer of the first specification with containers.
fn path_of_containers(value: &Value) -> Option<String> {
    // Containers with an image are a pod's; other lists may be called `containers` too.
    if list(&value["containers"]).any(|each| each.get("image").is_some()) {
        return Some(String::new());
    }
    value
        .as_object()?
        .iter()
        .find_map(|(name, value)| Some(format!("/{name}{}", path_of_containers(value)?)))
}

/// Returns the objects of documents.
pub(crate) fn objects(documents: &[Document]) -> impl Iterator<Item = Object<'_>> {
    documents.iter().map(|document| Object(&document.value))
}

/// Returns true for objects that may be in one namespace: where one object leaves it to the command
/// line, it may be the namespace of the other.
pub(crate) fn share_namespace(one: Object<'_>, other: Object<'_>) -> bool {
    let (one, other) = (one.namespace(), other.namespace());
    one == other || one.is_empty() || other.is_empty()
}

/// Returns the items of a list; none where it is missing.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the actions of a container's probes, as [`action`] does.
pub(crate) fn actions(container: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    PROBES
        .into_iter()
        .filter_map(|(kind, _)| action(&container[kind]))
}

/// Returns the name and the members of a probe's action; `None` for an action that goes to no port.
pub(crate) fn action(probe: &Value) -> Option<(&'static str, &Value)> {
    ACTIONS
        .into_iter()
        .find_map(|name| Some((name, probe.get(name)?)))
}

/// Returns the value of a container's variable, as Kubernetes expands it; `None` where the container
/// does not set the variable itself.
pub(crate) fn variable(container: &Value, name: &str) -> Option<String> {
    let named = list(&container["env"]).filter(|variable| name_of(variable) == name);
    // As in Kubernetes the last variable of a name counts.
    Some(named.last()?["value"].as_str()?.replace("$$", "$"))
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
