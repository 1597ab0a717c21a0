//! Services that lead to protected pods: their ports are moved to the sidecar.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::manifest::names::{OPEN_PORTS, PORT, SIDECAR};
use crate::manifest::object::{Object, list, name_of, share_namespace};
use crate::manifest::original;
use crate::network::ports::{self, ADMIN_PORT, SIDECAR_PORT};

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
    pub(crate) value: &'v Value,
    /// The target of the port: the port itself where no target is named.
    pub(crate) target: &'v Value,
    /// True for a port that leads past the sidecar on purpose.
    is_open: bool,
}

impl ServicePort<'_> {
    /// Returns true for a port that has to lead to the sidecar where it leads to the service.
    pub(crate) fn is_guarded(&self) -> bool {
        ports::is_tcp(self.value) && !self.is_open
    }
}

/// Returns the ports of a Service.
pub(crate) fn ports_of(service: Object<'_>) -> Vec<ServicePort<'_>> {
    let open: BTreeSet<&str> = service
        .annotation(OPEN_PORTS)
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .collect();
    let mut ports = Vec::new();
    for value in list(service.spec("ports")) {
        let (name, port) = (name_of(value), &value["port"]);
        let target = value.get("targetPort").filter(|target| !target.is_null());
        ports.push(ServicePort {
            value,
            target: target.unwrap_or(port),
            is_open: open.contains(&*port.to_string()) || !name.is_empty() && open.contains(name),
        });
    }
    ports
}

/// Returns true for a Service that selects the pods of an object. Labels that controllers add do not
/// count, except the pod name of a StatefulSet, which begins with the object's name.
pub(crate) fn selects(service: Object<'_>, object: Object<'_>) -> bool {
    let selector = service.spec("selector").as_object();
    let (Some(selector), Some(pod)) = (selector, object.pod()) else {
        return false;
    };
    if service.kind() != "Service" || !share_namespace(service, object) {
        return false;
    }
    let meets = |name: &str, value: &Value| match pod.label(name) {
        Some(label) => value == label,
        // A StatefulSet names its pods after itself, with a number after a hyphen.
        None if name == "statefulset.kubernetes.io/pod-name" => match value.as_str() {
            Some(pod) => pod.starts_with(&format!("{}-", object.name())),
            None => false,
        },
        // No manifest has the labels of controllers, so the pod may get any value of them.
        None => LABELS_OF_CONTROLLERS.contains(&name),
    };
    // Without a selector the endpoints are written by hand, or the Service has none.
    !selector.is_empty() && selector.iter().all(|(name, value)| meets(name, value))
}

/// Returns true for a Service that may lead to the service itself, or leads to no pods at all.
pub(crate) fn is_exempt(service: Object<'_>) -> bool {
    service.label(SIDECAR) == Some("false") || service.spec("type") == "ExternalName"
}

fn is_headless(service: Object<'_>) -> bool {
    service.spec("clusterIP") == "None"
}

/// Returns the first way of a Service past the sidecar, in words.
fn way_past_sidecar(service: Object<'_>) -> Option<String> {
    for port in ports_of(service) {
        let target = port.target;
        let leads_to = |name: &str, number: u16| {
            ports::is_tcp(port.value) && (target == name || *target == number)
        };
        if port.is_open || leads_to("sidecar-admin", ADMIN_PORT) {
            continue;
        }
        // A Service with one port need not name it.
        let name = match name_of(port.value) {
            "" => port.value["port"].to_string(),
            name => name.to_owned(),
        };
        if !leads_to("sidecar", SIDECAR_PORT) {
            return Some(format!("port {name} leads to {target}, past the sidecar"));
        }
        if is_headless(service) {
            return Some(format!(
                "is headless: clients of port {name} connect to the pods themselves"
            ));
        }
    }
    None
}

/// Moves the ports that lead to the service of a pod, and returns true if there were any.
///
/// # Errors
/// The first port that would still lead past the sidecar.
pub(crate) fn move_to_sidecar(
    value: &mut Value,
    is_service: impl Fn(&Value) -> bool,
) -> Result<bool, String> {
    let mut changes = Vec::new();
    for (number, port) in ports_of(Object(value)).into_iter().enumerate() {
        if port.is_guarded() && is_service(port.target) && *port.target != SIDECAR_PORT {
            let path = format!("/spec/ports/{number}/targetPort");
            changes.push((path, SIDECAR_PORT.into()));
        }
    }
    let is_moved = !changes.is_empty();
    if is_moved {
        original::change(value, changes)?;
    }
    // Check the moved Service as a whole: a port that was not moved may lead past the sidecar.
    match way_past_sidecar(Object(value)) {
        None => Ok(is_moved),
        Some(reason) => Err(format!(
            "{reason}: list it in the annotation {OPEN_PORTS}, or label the Service {SIDECAR}: \"false\", if no token is required"
        )),
    }
}

/// Moves a labelled Service whose pods are not known: the target of its port, or of several ports the
/// one that an annotation names. The sidecar has the same port in every pod.
///
/// # Errors
/// The reason, where it is not certain which port leads to which.
pub(crate) fn move_alone(value: &mut Value) -> Result<bool, String> {
    let service = Object(value);
    // Without a cluster address no port translation leads to the sidecar.
    if is_headless(service) {
        return Err("is headless: its clients connect to the pods themselves".to_owned());
    }
    let mut targets = Vec::new();
    for port in ports_of(service) {
        if !port.is_open && *port.target != SIDECAR_PORT && *port.target != ADMIN_PORT {
            targets.push(port.target);
        }
    }
    // Several ports may lead to the same target, as for HTTP and HTTPS.
    targets.dedup();
    let target = match (targets.as_slice(), service.annotation(PORT)) {
        ([], _) => return Ok(false),
        ([only], _) => (*only).clone(),
        (_, Some(named)) => match ports::number(named) {
            Some(number) => number.into(),
            None => named.into(),
        },
        _ => {
            return Err(format!(
                "has several ports: name the service's by the annotation {PORT}, and those without a token by {OPEN_PORTS}"
            ));
        }
    };
    if !targets.contains(&&target) {
        return Err(format!(
            "the annotation {PORT} {target} is no target of its ports: write one of {} there",
            json!(targets)
        ));
    }
    move_to_sidecar(value, |port| *port == target)
}
