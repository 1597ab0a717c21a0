//! The protocol that the service speaks on its port, as its manifests say it.

use std::collections::BTreeMap;

use crate::manifest::annotations::{ORIGINAL, UPSTREAM_PROTOCOL};
use crate::manifest::object::{Object, actions, name_of, objects, text};
use crate::network::ports::{self, SIDECAR_PORT};
use crate::network::probes;
use crate::network::protocol_words::{H2C, HTTP, HTTPS, protocol_of};
use crate::network::services::{self, ServicePort};
use crate::yaml::Document;

/// Returns the protocol of the service of a pod, which may be behind Services of the input.
///
/// # Errors
/// The reason, where the manifests contradict each other.
pub(crate) fn service_protocol(
    owner: Object<'_>,
    pod: Object<'_>,
    port: Option<u16>,
    input: &[Document],
) -> Result<&'static str, String> {
    if let Some(word) = pod.annotation(UPSTREAM_PROTOCOL) {
        return [HTTP, H2C, HTTPS]
            .into_iter()
            .find(|known| *known == word)
            .ok_or_else(|| {
                format!("the annotation {UPSTREAM_PROTOCOL} {word:?} is not http, h2c or https")
            });
    }
    let Some(port) = port else {
        return Ok(HTTP);
    };
    let mut said = said_by_pod(pod, port);
    let mut names = Vec::new();
    for service in objects(input).filter(|service| services::selects(*service, owner)) {
        // The ports of a Service that was moved before lead to the pod's service through the sidecar.
        let sidecar_port = service.annotation(ORIGINAL).map(|_| SIDECAR_PORT);
        let leads = |each: &ServicePort<'_>| {
            let target = ports::resolved(pod, each.target);
            each.is_guarded() && target.is_some() && [Some(port), sidecar_port].contains(&target)
        };
        for each in services::ports_of(service).into_iter().filter(leads) {
            names.push(name_of(each.value));
            let word = text(each.value, "/appProtocol");
            if let Some(protocol) = protocol_of(word) {
                said.insert(
                    protocol,
                    format!("appProtocol {word} of {}", service.described()),
                );
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

/// Returns the protocols that names of a container's port and probes say, with these.
fn said_by_pod(pod: Object<'_>, port: u16) -> BTreeMap<&'static str, String> {
    let mut said = BTreeMap::new();
    for container in pod.others() {
        let named = ports::container_ports(container).filter(|(_, number)| *number == port);
        // `http` is the name of any.
        let named =
            named.filter_map(|(name, _)| Some((protocol_of(name).filter(|it| *it != HTTP)?, name)));
        said.extend(named.map(|(protocol, name)| (protocol, format!("the port {name}"))));
        for (_, kind, action) in actions(container) {
            let is_https = text(action, "/scheme") == "HTTPS";
            if probes::port_of(action, container) != Some(port) {
                continue;
            } else if kind == "grpc" {
                said.insert(H2C, "a probe by grpc".to_owned());
            } else if is_https {
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
    services::ports_of(service).into_iter().filter(ServicePort::is_guarded).find_map(|port| {
        let (word, name) = (text(port.value, "/appProtocol"), name_of(port.value));
        let (source, said) = match protocol_of(word) {
            Some(protocol) => (format!("appProtocol {word}"), protocol),
            None => (format!("the port {name}"), agreed_by_names(&[name])),
        };
        // So does the port of a container that has this name.
        let is_known = said == HTTP || port.target.as_str().and_then(protocol_of) == Some(said);
        (!is_known).then(|| format!("{source}: name the port of the container so too, or annotate the workload {UPSTREAM_PROTOCOL}: {said}"))
    })
}
