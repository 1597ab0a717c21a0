//! The protocol that the service speaks on its port, as its manifests say it.

use std::collections::BTreeMap;

use crate::annotations::UPSTREAM_PROTOCOL;
use crate::object::{Object, actions, objects, text};
use crate::yaml::Document;
use crate::{ports, probes, services};

pub(crate) const HTTP: &str = "http";
const H2C: &str = "h2c";
const HTTPS: &str = "https";

/// Words of `appProtocol`, which are the beginnings of names of ports too.
const WORDS: [(&str, &str); 7] = [
    ("grpc-web", HTTP),
    ("grpc", H2C),
    ("h2c", H2C),
    ("http2", H2C),
    ("https", HTTPS),
    ("wss", HTTPS),
    ("http", HTTP),
];

/// Returns the protocol of the service of a pod, which may be behind Services of the input.
///
/// # Errors
/// The reason, where the manifests contradict each other.
pub(crate) fn of_service(
    owner: Object<'_>,
    pod: Object<'_>,
    port: Option<u16>,
    input: &[Document],
) -> Result<&'static str, String> {
    if let Some(word) = pod.annotation(UPSTREAM_PROTOCOL) {
        let known = [HTTP, H2C, HTTPS].into_iter().find(|known| *known == word);
        return known.ok_or_else(|| {
            format!("the annotation {UPSTREAM_PROTOCOL} {word:?} is not http, h2c or https")
        });
    }
    let Some(port) = port else {
        return Ok(HTTP);
    };
    let mut said: BTreeMap<&str, String> = BTreeMap::new();
    for container in pod.others() {
        let named = ports::of_container(container).filter(|(_, number)| *number == port);
        // `http` is the name of any.
        let named =
            named.filter_map(|(name, _)| Some((of_word(name).filter(|it| *it != HTTP)?, name)));
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
    for service in objects(input).filter(|service| services::selects(*service, owner)) {
        let ports = services::ports_of(service).into_iter();
        let leading = ports.filter(|each| ports::resolved(pod, each.target) == Some(port));
        said.extend(leading.filter_map(|each| {
            let word = text(each.value, "/appProtocol");
            let source = format!("appProtocol {word} of {}", service.described());
            Some((of_word(word)?, source))
        }));
    }
    let mut all = said.into_iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(HTTP),
        (Some((protocol, _)), None) => Ok(protocol),
        (Some((one, source)), Some((other, second))) => Err(format!(
            "speaks {one} by {source}, and {other} by {second}: decide it by the annotation {UPSTREAM_PROTOCOL}"
        )),
    }
}

/// Returns a warning about a Service that is reviewed apart from its pods: their sidecars do not
/// learn what its port says.
pub(crate) fn warning(service: Object<'_>) -> Option<String> {
    services::ports_of(service).into_iter().find_map(|port| {
        let word = text(port.value, "/appProtocol");
        let said = of_word(word).filter(|protocol| *protocol != HTTP)?;
        // So does the port of a container that has this name.
        let is_known = port.target.as_str().and_then(of_word) == Some(said);
        (!is_known).then(|| format!("appProtocol {word}: name the port of the container so too, or annotate the workload {UPSTREAM_PROTOCOL}: {said}"))
    })
}

fn of_word(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let word = word.strip_prefix("kubernetes.io/").unwrap_or(&word);
    let begins = |known: &str| word == known || word.starts_with(&format!("{known}-"));
    let found = WORDS.iter().find(|(known, _)| begins(known));
    found.map(|(_, protocol)| *protocol)
}
