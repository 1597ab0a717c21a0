//! Services that lead to protected pods: their ports are moved to the sidecar.

use serde_json::Value;

use super::Rejected;
use super::annotations::{OPEN_PORTS, PORT, SIDECAR, SIDECAR_PORT};
use super::component::Component;
use super::object::{Object, PodView, list, name_of, text};
use super::patch::{Operation, add_member};
use super::ports::{self, Ports};

/// A port of a Service, and where it leads.
#[derive(Debug)]
pub(super) struct ServicePort<'v> {
    pub(super) number: usize,
    value: &'v Value,
}

impl<'v> ServicePort<'v> {
    /// Returns the name, or the number where it has none.
    pub(super) fn described(&self) -> String {
        match name_of(self.value) {
            "" => self.own_number().to_string(),
            name => name.to_owned(),
        }
    }

    fn own_number(&self) -> u64 {
        self.value.get("port").and_then(Value::as_u64).unwrap_or(0)
    }

    fn is_tcp(&self) -> bool {
        matches!(text(self.value, "/protocol"), "" | "TCP")
    }

    /// Returns the target: without one it is the port itself.
    pub(super) fn target(&self) -> &'v Value {
        let target = self
            .value
            .get("targetPort")
            .filter(|target| !target.is_null());
        target
            .or_else(|| self.value.get("port"))
            .unwrap_or(&Value::Null)
    }

    fn is_open(&self, service: Object<'_>) -> bool {
        let open = service.annotation(OPEN_PORTS).unwrap_or_default();
        open.split(',').map(str::trim).any(|name| {
            !name.is_empty()
                && (name == name_of(self.value) || name == self.own_number().to_string())
        })
    }

    fn moved(&self, to: u16) -> Operation {
        let path = format!("/spec/ports/{}/targetPort", self.number);
        match self.value.get("targetPort") {
            Some(_) => Operation::replace(path, to.into()),
            None => Operation::add(path, to.into()),
        }
    }
}

/// Returns the ports of a Service.
pub(super) fn ports_of(service: Object<'_>) -> Vec<ServicePort<'_>> {
    let ports = list(service.value().pointer("/spec/ports")).enumerate();
    ports
        .map(|(number, value)| ServicePort { number, value })
        .collect()
}

/// Returns true for a Service that selects a pod with these labels.
pub(super) fn selects(service: Object<'_>, pod: &PodView<'_>) -> bool {
    let selector = service.value().pointer("/spec/selector");
    let Some(selector) = selector.and_then(Value::as_object) else {
        return false;
    };
    !selector.is_empty()
        && selector
            .iter()
            .all(|(name, value)| pod.labels().and_then(|labels| labels.get(name)) == Some(value))
}

/// Returns true for a Service that may lead to the service itself.
pub(super) fn is_exempt(service: Object<'_>) -> bool {
    service.label(SIDECAR) == Some("false")
}

fn is_headless(service: Object<'_>) -> bool {
    text(service.value(), "/spec/clusterIP") == "None"
}

/// A port that leads past the sidecar.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) number: usize,
    pub(super) reason: String,
}

/// Returns the ports of a Service that lead past the sidecar of a pod.
pub(super) fn past(service: Object<'_>, pod: &PodView<'_>, sidecar: u16) -> Vec<Past> {
    if is_exempt(service) {
        return Vec::new();
    }
    let ports = ports_of(service).into_iter();
    ports
        .filter(|port| !port.is_open(service))
        .filter_map(|port| {
            let name = port.described();
            let target = ports::resolved(pod, port.target());
            let reason = if target != Some(sidecar) || !port.is_tcp() {
                format!("port {name} leads to {}, past the sidecar", port.target())
            } else if is_headless(service) {
                format!("is headless: clients of port {name} connect to the pods themselves")
            } else {
                return None;
            };
            Some(Past {
                number: port.number,
                reason,
            })
        })
        .collect()
}

/// Moves the ports that lead to the service of a pod.
///
/// # Errors
/// The first port that would still lead past the sidecar.
pub(super) fn moved(
    service: Object<'_>,
    pod: &PodView<'_>,
    of_pod: Ports,
) -> Result<Vec<Operation>, Rejected> {
    if is_exempt(service) {
        return Ok(Vec::new());
    }
    let is_service = |port: &ServicePort<'_>| {
        let target = ports::resolved(pod, port.target());
        port.is_tcp() && !port.is_open(service) && target == Some(of_pod.service)
    };
    let operations = moving(service, of_pod.sidecar, is_service);
    rest_leads_to(service, &operations, pod, of_pod.sidecar)?;
    Ok(operations)
}

fn moving(
    service: Object<'_>,
    sidecar: u16,
    is_service: impl Fn(&ServicePort<'_>) -> bool,
) -> Vec<Operation> {
    let ports = ports_of(service);
    let ports = ports.iter().filter(|port| is_service(port));
    let ports = ports.filter(|port| port.target().as_u64() != Some(u64::from(sidecar)));
    let mut operations: Vec<Operation> = ports.map(|port| port.moved(sidecar)).collect();
    if !operations.is_empty() && service.annotation(SIDECAR_PORT).is_none() {
        // At the next review it tells the moved port from one of the service.
        let annotations = service.value().pointer("/metadata/annotations");
        let value = sidecar.to_string().into();
        operations.push(add_member(
            annotations,
            "/metadata/annotations",
            SIDECAR_PORT,
            value,
        ));
    }
    operations
}

fn rest_leads_to(
    service: Object<'_>,
    operations: &[Operation],
    pod: &PodView<'_>,
    sidecar: u16,
) -> Result<(), Rejected> {
    let rejected = |reason: String| Rejected::new(service.described(), reason);
    let after = super::patch::apply(service.value(), operations)
        .ok_or_else(|| rejected("has no place for another port".to_owned()))?;
    match past(Object::new(&after), pod, sidecar).into_iter().next() {
        None => Ok(()),
        Some(first) => Err(rejected(format!(
            "{}: list it in the annotation {OPEN_PORTS}, or label the Service {SIDECAR}: \"false\", if no token is required",
            first.reason
        ))),
    }
}

/// Moves a labelled Service whose pods are not known: its one port, or the one that an annotation
/// names.
///
/// # Errors
/// The reason, where it is not certain which port leads to which.
pub(super) fn moved_alone(
    service: Object<'_>,
    component: &Component,
) -> Result<Vec<Operation>, Rejected> {
    let rejected = |reason: String| Rejected::new(service.described(), reason);
    if is_headless(service) {
        return Err(rejected(
            "is headless: its clients connect to the pods themselves".to_owned(),
        ));
    }
    let sidecar = service.annotation(SIDECAR_PORT).and_then(ports::number);
    let target = target_of_service(service, sidecar, component).map_err(rejected)?;
    let sidecar = match (sidecar, target.as_u64()) {
        (Some(sidecar), _) => sidecar,
        (None, Some(port)) => {
            let port = u16::try_from(port).unwrap_or(0);
            ports::beside(port, component)
        }
        (None, None) => {
            return Err(rejected(format!(
                "targetPort {target} is a name: give the number by the annotation {PORT}, or the sidecar's by {SIDECAR_PORT}"
            )));
        }
    };
    let named = service.annotation(PORT);
    let is_service = |port: &ServicePort<'_>| {
        let leads = port.target() == &target || named.is_some() && ports_of(service).len() == 1;
        port.is_tcp() && leads
    };
    let operations = moving(service, sidecar, is_service);
    let no_pod = Value::Null;
    let pod = PodView::of_nothing(&no_pod);
    rest_leads_to(service, &operations, &pod, sidecar)?;
    Ok(operations)
}

/// Returns the target that leads to the service.
fn target_of_service(
    service: Object<'_>,
    sidecar: Option<u16>,
    component: &Component,
) -> Result<Value, String> {
    if let Some(port) = service.annotation(PORT) {
        return Ok(ports::number(port).map_or_else(|| port.into(), Value::from));
    }
    let ports = ports_of(service);
    let mut ports = ports.iter().filter(|port| !port.is_open(service));
    let (Some(only), None) = (ports.next(), ports.next()) else {
        return Err(format!(
            "has several ports: name the service's by the annotation {PORT}, and those without a token by {OPEN_PORTS}"
        ));
    };
    let target = only.target().clone();
    let usual = component.port("sidecar");
    if sidecar.is_none() && target.as_u64() == Some(u64::from(usual)) {
        return Err(format!(
            "targetPort {usual} may be the sidecar's or the service's: tell by the annotation {SIDECAR_PORT} or {PORT}"
        ));
    }
    Ok(target)
}
