//! The protocol that the service speaks on its port, as its manifests say it.

use std::collections::BTreeMap;

use crate::manifest::names::{ORIGINAL, UPSTREAM_PROTOCOL};
use crate::manifest::object::{Object, actions, name_of, objects, text};
use crate::network::ports::{self, SIDECAR_PORT};
use crate::network::probes;
use crate::network::protocol_words::{H2C, HTTP, HTTPS, protocol_of};
use crate::network::services;
use crate::yaml::Document;

/// Returns the protocol of the service of a pod, which may be behind Services of the input.
///
/// # Errors
/// The reason, where the manifests contradict each other.
pub(crate) fn service_protocol(
    owner: Object<'_>,
    pod: Object<'_>,
    port: u16,
    input: &[Document],
) -> Result<&'static str, String> {
    if let Some(word) = pod.annotation(UPSTREAM_PROTOCOL) {
        let mut known = [HTTP, H2C, HTTPS].into_iter();
        return known.find(|known| *known == word).ok_or_else(|| {
            format!("the annotation {UPSTREAM_PROTOCOL} {word:?} is not http, h2c or https")
        });
    }
    let mut said = said_by_pod(pod, port);
    let mut names = Vec::new();
    for service in objects(input).filter(|service| services::selects(*service, owner)) {
        // The ports of a Service that was moved before lead to the pod's service through the sidecar.
        let is_moved = service.annotation(ORIGINAL).is_some();
        for each in services::ports_of(service) {
            let target = ports::target_port(pod, each.target);
            let leads_to_service = target == Some(port) || is_moved && target == Some(SIDECAR_PORT);
            if !leads_to_service || !each.is_guarded() {
                continue;
            }
            names.push(name_of(each.value));
            let word = text(each.value, "/appProtocol");
            if let Some(protocol) = protocol_of(word) {
                let source = format!("appProtocol {word} of {}", service.described());
                said.insert(protocol, source);
            }
        }
    }
    let mut all = said.into_iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(agreed_by_names(&names)),
        (Some((protocol, _)), None) => Ok(protocol),
        (Some((one, source)), Some((other, second))) => Err(format!(
            "speaks {one} by {source}, and {other} by {second}: decide it by the annotation {UPSTREAM_PROTOCOL}"
        )),
    }
}

/// Returns the protocols that names and probes of a port of the pod say, each with its source.
fn said_by_pod(pod: Object<'_>, port: u16) -> BTreeMap<&'static str, String> {
    let mut said = BTreeMap::new();
    for container in pod.others() {
        for (name, number) in ports::container_ports(container) {
            match protocol_of(name) {
                // A port of any protocol may be called `http`.
                Some(protocol) if number == port && protocol != HTTP => {
                    said.insert(protocol, format!("the port {name}"));
                }
                _ => {}
            }
        }
        for (name, action) in actions(container) {
            if probes::port_of(action, container) != Some(port) {
                continue;
            } else if name == "grpc" {
                said.insert(H2C, "a probe by grpc".to_owned());
            } else if text(action, "/scheme") == "HTTPS" {
                said.insert(HTTPS, "a probe by HTTPS".to_owned());
            }
        }
    }
    said
}

/// Returns the protocol by the names of a Service's ports, where nothing else says it: HTTP/2 if all
/// do. `https` may end at a load balancer in front.
fn agreed_by_names(names: &[&str]) -> &'static str {
    let mut protocols = names.iter().map(|name| protocol_of(name));
    if !names.is_empty() && protocols.all(|protocol| protocol == Some(H2C)) {
        H2C
    } else {
        HTTP
    }
}

/// Returns a warning about a Service that is reviewed apart from its pods: their sidecars do not
/// learn what its port says.
pub(crate) fn warning(service: Object<'_>) -> Option<String> {
    for port in services::ports_of(service) {
        if !port.is_guarded() {
            continue;
        }
        let (word, name) = (text(port.value, "/appProtocol"), name_of(port.value));
        let (source, said) = match protocol_of(word) {
            Some(protocol) => (format!("appProtocol {word}"), protocol),
            None => (format!("the port {name}"), agreed_by_names(&[name])),
        };
        // The sidecar speaks HTTP by itself, and learns another protocol by the name of the container's port.
        if said == HTTP || port.target.as_str().and_then(protocol_of) == Some(said) {
            continue;
        }
        return Some(format!(
            "{source}: name the port of the container so too, or annotate the workload {UPSTREAM_PROTOCOL}: {said}"
        ));
    }
    None
}
