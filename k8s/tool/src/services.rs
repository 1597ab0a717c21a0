//! Services that lead to protected pods: their ports are moved to the sidecar.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::annotations::{OPEN_PORTS, PORT, SIDECAR};
use crate::component::Component;
use crate::object::{Object, PodView, Rejected, list, name_of, text};
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
    pub(crate) number: usize,
    value: &'v Value,
    /// Leads past the sidecar on purpose.
    is_open: bool,
}

impl<'v> ServicePort<'v> {
    /// Returns the name, or the number where it has none.
    pub(crate) fn described(&self) -> String {
        match name_of(self.value) {
            "" => own_number(self.value),
            name => name.to_owned(),
        }
    }

    fn is_tcp(&self) -> bool {
        matches!(text(self.value, "/protocol"), "" | "TCP")
    }

    pub(crate) fn app_protocol(&self) -> &'v str {
        text(self.value, "/appProtocol")
    }

    /// Returns the target: without one it is the port itself.
    pub(crate) fn target(&self) -> &'v Value {
        let target = self
            .value
            .get("targetPort")
            .filter(|target| !target.is_null());
        target
            .or_else(|| self.value.get("port"))
            .unwrap_or(&Value::Null)
    }
}

fn own_number(port: &Value) -> String {
    let number = port.get("port").and_then(Value::as_u64);
    number.unwrap_or(0).to_string()
}

/// Returns the ports of a Service.
pub(crate) fn ports_of(service: Object<'_>) -> Vec<ServicePort<'_>> {
    let open = service.annotation(OPEN_PORTS).unwrap_or_default();
    let mut open: BTreeSet<&str> = open.split(',').map(str::trim).collect();
    open.remove("");
    let ports = list(service.value().pointer("/spec/ports")).enumerate();
    ports
        .map(|(number, value)| ServicePort {
            number,
            value,
            is_open: open.contains(name_of(value)) || open.contains(&*own_number(value)),
        })
        .collect()
}

/// Returns true for a Service that selects the pods of an object. Labels that controllers add do
/// not tell them apart, but for the name that begins with the object's.
pub(crate) fn selects(service: Object<'_>, object: Object<'_>, pod: &PodView<'_>) -> bool {
    let selector = service.value().pointer("/spec/selector");
    let Some(selector) = selector.and_then(Value::as_object) else {
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
    !selector.is_empty() && selector.iter().all(|(name, value)| meets(name, value))
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
pub(crate) fn past(service: Object<'_>, own: &[(String, u16)]) -> Vec<String> {
    if is_exempt(service) {
        return Vec::new();
    }
    let of_sidecar = |target: &Value| {
        own.iter().find(|(name, number)| {
            target == name.as_str() || target.as_u64() == Some((*number).into())
        })
    };
    let ports = ports_of(service).into_iter();
    ports
        .filter(|port| !port.is_open)
        .filter_map(|port| {
            let name = port.described();
            let to = of_sidecar(port.target()).filter(|_| port.is_tcp());
            match to {
                None => Some(format!(
                    "port {name} leads to {}, past the sidecar",
                    port.target()
                )),
                Some((to, _)) if to == "sidecar" && is_headless(service) => Some(format!(
                    "is headless: clients of port {name} connect to the pods themselves"
                )),
                Some(_) => None,
            }
        })
        .collect()
}

/// Moves the ports that lead to the service of a pod, and returns true if there were any.
///
/// # Errors
/// The first port that would still lead past the sidecar.
pub(crate) fn move_to_sidecar(
    value: &mut Value,
    pod: &PodView<'_>,
    of_pod: Ports,
) -> Result<bool, Rejected> {
    let own = [
        ("sidecar".to_owned(), of_pod.sidecar),
        ("sidecar-admin".to_owned(), of_pod.admin),
    ];
    move_ports(value, of_pod.sidecar, &own, |port| {
        of_pod.service.is_some() && ports::resolved(pod, port.target()) == of_pod.service
    })
}

/// Moves the ports of a service to one of `own`, and returns true if there were any.
fn move_ports(
    value: &mut Value,
    sidecar: u16,
    own: &[(String, u16)],
    is_service: impl Fn(&ServicePort<'_>) -> bool,
) -> Result<bool, Rejected> {
    let before = value.clone();
    let ports = ports_of(Object::new(value)).into_iter();
    let moved = ports.filter(|port| port.is_tcp() && !port.is_open && is_service(port));
    let moved: Vec<usize> = moved.map(|port| port.number).collect();
    for number in moved {
        let port = value.pointer_mut(&format!("/spec/ports/{number}"));
        if let Some(port) = port.and_then(Value::as_object_mut) {
            port.insert("targetPort".to_owned(), sidecar.into());
        }
    }
    let is_moved = *value != before;
    if is_moved {
        original::keep(&before, value);
    }
    let service = Object::new(value);
    match past(service, own).into_iter().next() {
        None => Ok(is_moved),
        Some(reason) => Err(Rejected::new(
            service.described(),
            format!(
                "{reason}: list it in the annotation {OPEN_PORTS}, or label the Service {SIDECAR}: \"false\", if no token is required"
            ),
        )),
    }
}

/// Moves a labelled Service whose pods are not known: the target of its ports, or of several the
/// one that an annotation names. The sidecar has the same port in every pod.
///
/// # Errors
/// The reason, where it is not certain which port leads to which.
pub(crate) fn move_alone(value: &mut Value, component: &Component) -> Result<bool, Rejected> {
    let service = Object::new(value);
    let rejected = |reason: String| Rejected::new(service.described(), reason);
    if is_headless(service) {
        return Err(rejected(
            "is headless: its clients connect to the pods themselves".to_owned(),
        ));
    }
    let own = component.ports();
    let ports = ports_of(service);
    let others = ports.iter().filter(|port| !port.is_open);
    let mut targets: Vec<&Value> = others.map(ServicePort::target).collect();
    targets.retain(|target| {
        !own.iter()
            .any(|(_, port)| target.as_u64() == Some((*port).into()))
    });
    targets.dedup();
    let target = match (targets.as_slice(), service.annotation(PORT)) {
        ([], _) => return Ok(false),
        ([only], _) => (*only).clone(),
        (_, Some(named)) => {
            let named = ports::number(named).map_or_else(|| named.into(), Value::from);
            if !targets.contains(&&named) {
                let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
                let targets = targets.join(", ");
                return Err(rejected(format!(
                    "the annotation {PORT} {named} is no target of its ports: write one of {targets} there"
                )));
            }
            named
        }
        _ => {
            return Err(rejected(format!(
                "has several ports: name the service's by the annotation {PORT}, and those without a token by {OPEN_PORTS}"
            )));
        }
    };
    move_ports(value, component.port("sidecar"), &own, |port| {
        port.target() == &target
    })
}
