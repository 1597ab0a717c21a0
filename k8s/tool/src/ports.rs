//! The three ports of a protected pod: the service's, the sidecar's, the sidecar's for probes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::annotations::PORT;
use crate::component::Component;
use crate::object::{PodView, actions, list, name_of, variable};
use crate::settings::UPSTREAM;

/// The service's port where nothing declares one, as the component has it.
const UNDECLARED: u16 = 3000;

/// The ports of one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports {
    /// `None` where the settings of a sidecar do not say.
    pub(crate) service: Option<u16>,
    pub(crate) sidecar: u16,
    pub(crate) admin: u16,
}

/// A declared port of a container.
struct Declared<'v> {
    name: &'v str,
    number: u16,
    is_tcp: bool,
}

impl Ports {
    /// Finds the ports of a pod.
    ///
    /// # Errors
    /// The reason, where the service's port is not certain or the sidecar's is taken.
    pub(crate) fn of(pod: &PodView<'_>, component: &Component) -> Result<Self, String> {
        let taken =
            |port| format!("port {port} is the sidecar's: let the service listen on another one");
        let declared: BTreeSet<u16> = declared(pod).map(|port| port.number).collect();
        if let Some(present) = pod.sidecar() {
            let port = |name| {
                let mut own = of_container(present);
                let own = own.find(|(other, _)| *other == name);
                own.map_or(component.port(name), |(_, port)| port)
            };
            let (sidecar, admin) = (port("sidecar"), port("sidecar-admin"));
            if let Some(port) = [sidecar, admin]
                .iter()
                .find(|port| declared.contains(*port))
            {
                return Err(taken(*port));
            }
            return Ok(Self {
                service: upstream(present).unwrap_or_else(|| of_service(pod).ok()),
                sidecar,
                admin,
            });
        }
        let service = of_service(pod)?;
        let used: BTreeSet<u16> = declared
            .into_iter()
            .chain(probed(pod))
            .chain([service])
            .collect();
        // The same in every pod: Services and policies that know no pod lead to it alone.
        let sidecar = component.port("sidecar");
        if used.contains(&sidecar) {
            return Err(taken(sidecar));
        }
        let admin = (component.port("sidecar-admin")..u16::MAX)
            .find(|port| *port != sidecar && !used.contains(port))
            .ok_or("no port is free")?;
        Ok(Self {
            service: Some(service),
            sidecar,
            admin,
        })
    }
}

/// Parses a port.
pub(crate) fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

/// Returns the number of a port of a container that is named or numbered by `target`.
pub(crate) fn resolved(pod: &PodView<'_>, target: &Value) -> Option<u16> {
    match target {
        Value::Number(_) => target.as_u64().and_then(|port| u16::try_from(port).ok()),
        Value::String(text) => number(text).or_else(|| {
            let mut named = declared(pod).filter(|port| port.name == text);
            named.next().map(|port| port.number)
        }),
        _ => None,
    }
}

/// Returns the port of the node that leads to a port of the pod.
pub(crate) fn of_node(pod: &PodView<'_>, port: u16) -> Option<u64> {
    let declared = pod
        .others()
        .flat_map(|container| list(container.get("ports")));
    let mut same = declared.filter(|declared| {
        declared.get("containerPort").and_then(Value::as_u64) == Some(u64::from(port))
    });
    same.find_map(|declared| declared.get("hostPort")?.as_u64().filter(|port| *port > 0))
}

/// Returns the names and numbers of the ports that a container declares.
pub(crate) fn of_container(container: &Value) -> impl Iterator<Item = (&str, u16)> {
    declared_in(container).map(|port| (port.name, port.number))
}

/// Returns the service's port of a pod whose sidecar does not say.
///
/// # Errors
/// The reason, where it is not certain.
pub(crate) fn of_service(pod: &PodView<'_>) -> Result<u16, String> {
    if let Some(text) = pod.annotation(PORT) {
        return resolved(pod, &text.into())
            .ok_or_else(|| format!("the annotation {PORT} '{text}' is no port of a container"));
    }
    let tcp: Vec<_> = declared(pod).filter(|port| port.is_tcp).collect();
    let named: Vec<_> = tcp.iter().filter(|port| port.name == "http").collect();
    let mut probed: Vec<u16> = probed(pod).collect();
    probed.sort_unstable();
    probed.dedup();
    match (tcp.as_slice(), named.as_slice()) {
        ([], _) => match probed.as_slice() {
            [only] => Ok(*only),
            _ => Ok(UNDECLARED),
        },
        ([only], _) => Ok(only.number),
        (_, [only]) => Ok(only.number),
        _ => Err(format!(
            "has several ports: name the service's by the annotation {PORT}"
        )),
    }
}

/// Returns the port that a sidecar forwards to, where its container says: none for a socket.
fn upstream(sidecar: &Value) -> Option<Option<u16>> {
    let upstream = variable(sidecar, UPSTREAM)?;
    let (_, port) = upstream.rsplit_once(':')?;
    Some(number(port.trim_end_matches('/')))
}

/// Returns the ports that probes of containers name by number: some are not declared.
fn probed<'v>(pod: &PodView<'v>) -> impl Iterator<Item = u16> + use<'v> {
    let actions = pod.others().flat_map(actions);
    let ports = actions.filter_map(|(_, action)| action.get("port")?.as_u64());
    let sidecar = pod.sidecar();
    let own = sidecar.into_iter().flat_map(declared_in);
    let own: Vec<u16> = own.map(|port| port.number).collect();
    ports
        .filter_map(|port| u16::try_from(port).ok())
        .filter(move |port| !own.contains(port))
}

fn declared<'v>(pod: &PodView<'v>) -> impl Iterator<Item = Declared<'v>> + use<'v> {
    pod.others().flat_map(declared_in)
}

fn declared_in(container: &Value) -> impl Iterator<Item = Declared<'_>> {
    list(container.get("ports")).filter_map(|port| {
        let number = port.get("containerPort")?.as_u64()?;
        let protocol = port.get("protocol").and_then(Value::as_str);
        Some(Declared {
            name: name_of(port),
            number: u16::try_from(number).ok()?,
            is_tcp: protocol.is_none_or(|protocol| protocol == "TCP"),
        })
    })
}
