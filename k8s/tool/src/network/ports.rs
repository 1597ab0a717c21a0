//! The ports of a protected pod: the service's, and the two of the sidecar.

use serde_json::Value;

use crate::container::settings::UPSTREAM;
use crate::manifest::names::PORT;
use crate::manifest::object::{Object, actions, list, name_of, text, variable};
use crate::network::protocol_words::may_be_of_service;

/// The sidecar's port in every pod: Services and policies know no pod.
pub(crate) const SIDECAR_PORT: u16 = 18080;
/// The sidecar's port for probes and metrics.
pub(crate) const ADMIN_PORT: u16 = 18081;
const SIDECAR_PORTS: [u16; 2] = [SIDECAR_PORT, ADMIN_PORT];
/// The service's port where nothing declares one, as the component has it.
const UNDECLARED: u16 = 3000;

/// Returns the port of a pod's service; `None` where the settings of its sidecar do not say.
///
/// # Errors
/// The reason, where the port is not certain or one of the sidecar's is taken.
pub(crate) fn service_port(pod: Object<'_>) -> Result<Option<u16>, String> {
    let mut used: Vec<u16> = declared_ports(pod).map(|(_, port)| port).collect();
    let service = match pod.sidecar() {
        Some(sidecar) => upstream_port(sidecar).unwrap_or_else(|| find_service_port(pod).ok()),
        None => {
            let service = find_service_port(pod)?;
            used.push(service);
            // Only without a sidecar: with one, probes go to its admin port by right.
            used.extend(probed_ports(pod));
            Some(service)
        }
    };
    match SIDECAR_PORTS.iter().find(|port| used.contains(port)) {
        Some(port) => Err(format!(
            "port {port} is the sidecar's: let the service listen on another one"
        )),
        None => Ok(service),
    }
}

/// Returns the pod of an object that has a sidecar, and the port of its service.
pub(crate) fn protected_port(object: Object<'_>) -> Option<(Object<'_>, Option<u16>)> {
    let pod = object.pod().filter(|pod| pod.sidecar().is_some())?;
    Some((pod, service_port(pod).ok()?))
}

/// Parses a port.
pub(crate) fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

/// Returns the port number of a target: its own number, or the number of the port of the pod with this
/// name.
pub(crate) fn target_port(pod: Object<'_>, target: &Value) -> Option<u16> {
    target_among(declared_ports(pod), target)
}

/// Returns the port number of a target: its own number, or the number of the port with this name.
pub(crate) fn target_among<'v>(
    mut ports: impl Iterator<Item = (&'v str, u16)>,
    target: &Value,
) -> Option<u16> {
    let Value::String(text) = target else {
        return u16::try_from(target.as_u64()?).ok();
    };
    number(text).or_else(|| Some(ports.find(|(name, _)| name == text)?.1))
}

/// Returns the port of the node that leads to a port of the pod.
pub(crate) fn node_port(pod: Object<'_>, port: u16) -> Option<u64> {
    for each in pod.others().flat_map(|container| list(&container["ports"])) {
        match each["hostPort"].as_u64() {
            Some(host_port) if host_port > 0 && number_of(each) == Some(port) => {
                return Some(host_port);
            }
            _ => {}
        }
    }
    None
}

/// Returns the names and numbers of the TCP ports that a container declares.
pub(crate) fn container_ports(container: &Value) -> impl Iterator<Item = (&str, u16)> {
    list(&container["ports"])
        .filter(|port| is_tcp(port))
        .filter_map(|port| Some((name_of(port), number_of(port)?)))
}

fn number_of(port: &Value) -> Option<u16> {
    u16::try_from(port["containerPort"].as_u64()?).ok()
}

/// Returns true for a port of a container or a Service that speaks TCP.
pub(crate) fn is_tcp(port: &Value) -> bool {
    matches!(text(port, "/protocol"), "" | "TCP")
}

/// Returns the port of the service, as annotation, ports and probes of its pod say it.
///
/// # Errors
/// The reason, where it is not certain.
pub(crate) fn find_service_port(pod: Object<'_>) -> Result<u16, String> {
    if let Some(text) = pod.annotation(PORT) {
        return target_port(pod, &text.into())
            .ok_or_else(|| format!("the annotation {PORT} {text:?} is no port of a container"));
    }
    let declared: Vec<_> = declared_ports(pod).collect();
    let only = match &declared[..] {
        [] => return Ok(undeclared_port(pod)),
        [(_, only)] => Some(*only),
        several => match only_named(several, |name| name == "http") {
            None => only_named(several, may_be_of_service),
            http => http,
        },
    };
    only.ok_or_else(|| format!("has several ports: name the service's by the annotation {PORT}"))
}

/// Returns the port of a service whose pod declares none: where all probes name one port, it is this one.
fn undeclared_port(pod: Object<'_>) -> u16 {
    let mut probed = probed_ports(pod).filter(|port| !SIDECAR_PORTS.contains(port));
    match probed.next() {
        Some(port) if probed.all(|other| other == port) => port,
        _ => UNDECLARED,
    }
}

/// Returns the port with such a name, if it is the only one.
fn only_named(ports: &[(&str, u16)], is_meant: impl Fn(&str) -> bool) -> Option<u16> {
    let mut named = ports.iter().filter(|(name, _)| is_meant(name));
    match (named.next(), named.next()) {
        (Some((_, port)), None) => Some(*port),
        _ => None,
    }
}

/// Returns the port that a sidecar forwards to, where its container says: none for a socket.
fn upstream_port(sidecar: &Value) -> Option<Option<u16>> {
    let upstream = variable(sidecar, UPSTREAM)?;
    let (_, port) = upstream.rsplit_once(':')?;
    Some(number(port.trim_end_matches('/')))
}

/// Returns the ports that probes of containers name by number: some are not declared.
fn probed_ports<'v>(pod: Object<'v>) -> impl Iterator<Item = u16> + use<'v> {
    pod.others()
        .flat_map(actions)
        .filter_map(|(_, action)| u16::try_from(action["port"].as_u64()?).ok())
}

fn declared_ports<'v>(pod: Object<'v>) -> impl Iterator<Item = (&'v str, u16)> + use<'v> {
    pod.others().flat_map(container_ports)
}
