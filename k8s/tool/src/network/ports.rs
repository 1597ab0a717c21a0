//! The ports of a protected pod: the service's, and the two of the sidecar.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::container::settings::UPSTREAM;
use crate::manifest::annotations::PORT;
use crate::manifest::object::{Object, actions, list, name_of, text, variable};
use crate::network::protocol_words::may_be_of_service;

/// The sidecar's port in every pod: Services and policies know no pod.
pub(crate) const SIDECAR_PORT: u16 = 18080;
/// The sidecar's port for probes and metrics.
pub(crate) const ADMIN_PORT: u16 = 18081;
const OWN: [u16; 2] = [SIDECAR_PORT, ADMIN_PORT];
/// The service's port where nothing declares one, as the component has it.
const UNDECLARED: u16 = 3000;

/// Returns the port of a pod's service; `None` where the settings of its sidecar do not say.
///
/// # Errors
/// The reason, where the port is not certain or one of the sidecar's is taken.
pub(crate) fn service_port(pod: Object<'_>) -> Result<Option<u16>, String> {
    let mut used: Vec<u16> = declared(pod).map(|(_, port)| port).collect();
    let service = match pod.sidecar() {
        Some(present) => upstream(present).unwrap_or_else(|| found(pod).ok()),
        None => {
            let service = found(pod)?;
            // Only without a sidecar: with one, probes go to its admin port by right.
            used.extend(probed(pod).chain([service]));
            Some(service)
        }
    };
    match OWN.iter().find(|port| used.contains(port)) {
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
pub(crate) fn resolved(pod: Object<'_>, target: &Value) -> Option<u16> {
    resolved_in(declared(pod), target)
}

/// Returns the port number of a target: its own number, or the number of the port with this name.
pub(crate) fn resolved_in<'v>(
    mut ports: impl Iterator<Item = (&'v str, u16)>,
    target: &Value,
) -> Option<u16> {
    match target {
        Value::String(text) => {
            number(text).or_else(|| Some(ports.find(|(name, _)| name == text)?.1))
        }
        target => u16::try_from(target.as_u64()?).ok(),
    }
}

/// Returns the port of the node that leads to a port of the pod.
pub(crate) fn node_port(pod: Object<'_>, port: u16) -> Option<u64> {
    let mut same = pod
        .others()
        .flat_map(|each| list(&each["ports"]))
        .filter(|each| number_of(each) == Some(port));
    same.find_map(|each| each["hostPort"].as_u64().filter(|port| *port > 0))
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

/// Returns the service's port of a pod whose sidecar does not say.
///
/// # Errors
/// The reason, where it is not certain.
fn found(pod: Object<'_>) -> Result<u16, String> {
    if let Some(text) = pod.annotation(PORT) {
        return resolved(pod, &text.into())
            .ok_or_else(|| format!("the annotation {PORT} {text:?} is no port of a container"));
    }
    let declared: Vec<(&str, u16)> = declared(pod).collect();
    let only_named = |is_meant: fn(&str) -> bool| {
        let mut named = declared.iter().filter(|(name, _)| is_meant(name));
        named.next().filter(|_| named.next().is_none())
    };
    let only = match declared.as_slice() {
        // Nothing is declared: probes of one port name it, or it is the component's default.
        [] => {
            let probed: BTreeSet<u16> = probed(pod).filter(|port| !OWN.contains(port)).collect();
            return Ok(probed
                .first()
                .filter(|_| probed.len() == 1)
                .copied()
                .unwrap_or(UNDECLARED));
        }
        [only] => Some(only),
        _ => only_named(|name| name == "http").or_else(|| only_named(may_be_of_service)),
    };
    only.map(|(_, port)| *port)
        .ok_or_else(|| format!("has several ports: name the service's by the annotation {PORT}"))
}

/// Returns the port that a sidecar forwards to, where its container says: none for a socket.
fn upstream(sidecar: &Value) -> Option<Option<u16>> {
    let upstream = variable(sidecar, UPSTREAM)?;
    let (_, port) = upstream.rsplit_once(':')?;
    Some(number(port.trim_end_matches('/')))
}

/// Returns the ports that probes of containers name by number: some are not declared.
fn probed<'v>(pod: Object<'v>) -> impl Iterator<Item = u16> + use<'v> {
    pod.others()
        .flat_map(actions)
        .filter_map(|(.., action)| u16::try_from(action["port"].as_u64()?).ok())
}

fn declared<'v>(pod: Object<'v>) -> impl Iterator<Item = (&'v str, u16)> + use<'v> {
    pod.others().flat_map(container_ports)
}
