//! Services that lead to protected pods: their ports are moved to the sidecar.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::annotations::{OPEN_PORTS, PORT, SIDECAR};
use crate::object::{Object, list, name_of, share_namespace, text};
use crate::original;
use crate::ports::{self, Ports};

/// Labels that controllers give to pods, so that no manifest has them.
const LABELS_OF_CONTROLLERS: [&str; 10] = [
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-name",
    "controller-revision-hash",
    "controller-uid",
    "job-name",
    "pod-template-generation",
    "pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
];

/// A port of a Service, and where it leads.
#[derive(Debug)]
pub(crate) struct ServicePort<'v> {
    /// The name, or the number where it has none.
    name: String,
    value: &'v Value,
    /// The port itself where none is named.
    pub(crate) target: &'v Value,
    /// Leads past the sidecar on purpose.
    is_open: bool,
}

impl<'v> ServicePort<'v> {
    pub(crate) fn app_protocol(&self) -> &'v str {
        text(self.value, "/appProtocol")
    }
}

/// Returns the ports of a Service.
pub(crate) fn ports_of(service: Object<'_>) -> Vec<ServicePort<'_>> {
    let open = service.annotation(OPEN_PORTS).unwrap_or_default();
    let open: BTreeSet<&str> = open.split(',').map(str::trim).collect();
    let ports = list(service.value().pointer("/spec/ports"));
    let port = |value| port_of(value, &open);
    ports.map(port).collect()
}

fn port_of<'v>(value: &'v Value, open: &BTreeSet<&str>) -> ServicePort<'v> {
    let own = value.get("port").unwrap_or(&Value::Null);
    let number = own.as_u64().unwrap_or(0).to_string();
    let target = value.get("targetPort").filter(|target| !target.is_null());
    let name = name_of(value);
    ServicePort {
        is_open: open.contains(&*number) || !name.is_empty() && open.contains(name),
        name: if name.is_empty() {
            number
        } else {
            name.to_owned()
        },
        value,
        target: target.unwrap_or(own),
    }
}

/// Returns true for a Service that selects the pods of an object. Labels that controllers add do
/// not tell them apart, but for the name that begins with the object's.
pub(crate) fn selects(service: Object<'_>, object: Object<'_>) -> bool {
    let selector = service.value().pointer("/spec/selector");
    let selector = selector.and_then(Value::as_object);
    let (Some(selector), Some(pod)) = (selector, object.pod()) else {
        return false;
    };
    let meets = |name: &str, value: &Value| match pod.label(name) {
        Some(label) => value == label,
        None if name == "statefulset.kubernetes.io/pod-name" => {
            let is_of = |value: &str| {
                let rest = value.strip_prefix(object.name());
                rest.is_some_and(|rest| rest.starts_with('-'))
            };
            value.as_str().is_some_and(is_of)
        }
        None => LABELS_OF_CONTROLLERS.contains(&name),
    };
    service.kind() == "Service"
        && share_namespace(service, object)
        && !selector.is_empty()
        && selector.iter().all(|(name, value)| meets(name, value))
}

/// Returns true for a label selector that an object's labels meet; an empty one selects all.
pub(crate) fn meets(selector: &Value, own: Object<'_>) -> bool {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let mut labels = labels.into_iter().flatten();
    let mut expressions = list(selector.get("matchExpressions"));
    labels.all(|(name, value)| {
        value
            .as_str()
            .is_some_and(|value| own.label(name) == Some(value))
    }) && expressions.all(|expression| meets_one(expression, own.label(text(expression, "/key"))))
}

fn meets_one(expression: &Value, label: Option<&str>) -> bool {
    let is_listed = label.is_some_and(|label| {
        let mut values = list(expression.get("values"));
        values.any(|value| value == label)
    });
    match text(expression, "/operator") {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        _ => false,
    }
}

/// Returns true for a Service that may lead to the service itself, or leads to no pods at all.
pub(crate) fn is_exempt(service: Object<'_>) -> bool {
    service.label(SIDECAR) == Some("false") || text(service.value(), "/spec/type") == "ExternalName"
}

fn is_headless(service: Object<'_>) -> bool {
    text(service.value(), "/spec/clusterIP") == "None"
}

/// Returns the reasons why ports of a Service lead past a sidecar with these ports.
pub(crate) fn past(service: Object<'_>, own: Ports) -> Vec<String> {
    if is_exempt(service) {
        return Vec::new();
    }
    let ports = ports_of(service).into_iter();
    let ports = ports.filter(|port| !port.is_open);
    let reason = |ServicePort {
                      name,
                      value,
                      target,
                      ..
                  }| {
        let is = |own: &str, number: u16| {
            ports::is_tcp(value) && (target == own || target.as_u64() == Some(number.into()))
        };
        if is("sidecar-admin", own.admin) {
            return None;
        }
        if !is("sidecar", own.sidecar) {
            return Some(format!("port {name} leads to {target}, past the sidecar"));
        }
        is_headless(service)
            .then(|| format!("is headless: clients of port {name} connect to the pods themselves"))
    };
    ports.filter_map(reason).collect()
}

/// Moves the ports that lead to the service of a pod, and returns true if there were any.
///
/// # Errors
/// The first port that would still lead past the sidecar.
pub(crate) fn move_to_sidecar(
    value: &mut Value,
    own: Ports,
    is_service: impl Fn(&Value) -> bool,
) -> Result<bool, String> {
    let ports = ports_of(Object::new(value)).into_iter().enumerate();
    let moved = ports.filter(|(_, port)| {
        ports::is_tcp(port.value)
            && !port.is_open
            && is_service(port.target)
            && port.target.as_u64() != Some(own.sidecar.into())
    });
    let moved = moved.map(|(number, _)| format!("/spec/ports/{number}/targetPort"));
    let changes: Vec<_> = moved.map(|path| (path, own.sidecar.into())).collect();
    let is_moved = !changes.is_empty();
    if is_moved {
        original::change(value, changes)?;
    }
    let service = Object::new(value);
    match past(service, own).into_iter().next() {
        None => Ok(is_moved),
        Some(reason) => Err(format!(
            "{reason}: list it in the annotation {OPEN_PORTS}, or label the Service {SIDECAR}: \"false\", if no token is required"
        )),
    }
}

/// Moves a labelled Service whose pods are not known: the target of its ports, or of several the
/// one that an annotation names. The sidecar has the same port in every pod.
///
/// # Errors
/// The reason, where it is not certain which port leads to which.
pub(crate) fn move_alone(value: &mut Value) -> Result<bool, String> {
    let service = Object::new(value);
    if is_headless(service) {
        let why = "is headless: its clients connect to the pods themselves";
        return Err(why.to_owned());
    }
    let own = Ports::USUAL;
    let ports = ports_of(service).into_iter();
    let others = ports.filter(|port| !port.is_open).map(|port| port.target);
    let is_own = |target: &Value| [own.sidecar, own.admin].map(Value::from).contains(target);
    let mut targets: Vec<&Value> = others.filter(|target| !is_own(target)).collect();
    targets.dedup();
    let target = match (targets.as_slice(), service.annotation(PORT)) {
        ([], _) => return Ok(false),
        ([only], _) => (*only).clone(),
        (_, Some(named)) => ports::number(named).map_or_else(|| named.into(), Value::from),
        _ => {
            return Err(format!(
                "has several ports: name the service's by the annotation {PORT}, and those without a token by {OPEN_PORTS}"
            ));
        }
    };
    if !targets.contains(&&target) {
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let targets = targets.join(", ");
        return Err(format!(
            "the annotation {PORT} {target} is no target of its ports: write one of {targets} there"
        ));
    }
    move_to_sidecar(value, own, |port| *port == target)
}
