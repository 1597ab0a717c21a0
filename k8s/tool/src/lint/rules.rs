//! The rules of `lint`.

use serde_json::Value;

use wire::settings::probes::{Probe, parse};

use super::{Finding, Level, Located, Rule, network};
use crate::annotations::SIDECAR;
use crate::monitors::unserved;
use crate::object::{
    self, Object, PodView, Rejected, action, list, name_of, share_namespace, text, variable,
};
use crate::pod::add_sidecar;
use crate::ports::{self, Ports};
use crate::settings::{PROBES, Settings};
use crate::{probes, services};

/// A pod with its sidecar, its object and the whole input.
pub(super) struct ProtectedPod<'v, 'i> {
    /// The object that has the pod.
    pub(super) owner: &'i Located<'v>,
    pub(super) pod: PodView<'v>,
    pub(super) sidecar: &'v Value,
    pub(super) ports: Ports,
    pub(super) input: &'i [Located<'v>],
}

/// Returns the findings in the order of the input.
pub(super) fn findings(located: &[Located<'_>], settings: &Settings) -> Vec<Finding> {
    let mut found = Vec::new();
    let objects = located.iter().map(|each| each.object);
    let services: Vec<Object<'_>> = objects.filter(|each| each.kind() == "Service").collect();
    for each in located {
        let object = each.object;
        if let Err(rejected) = accepted(object, settings, &services) {
            found.push(each.finding(Level::Error, Rule::Rejected, rejected.reason));
        }
        match object.pod() {
            Some(pod) => found.extend(of_pod(each, pod, located, settings)),
            None if object.kind() == "Service" => of_service(each, located, &mut found),
            None => {}
        }
    }
    found
}

/// Rejects what `inject` rejects in an object and its pod, also where a sidecar is there already.
fn accepted(
    object: Object<'_>,
    settings: &Settings,
    services: &[Object<'_>],
) -> Result<(), Rejected> {
    object.check()?;
    if object.is_protected() || object.pod().is_some() && object.wants_sidecar() {
        add_sidecar(&mut object.value().clone(), settings, services)?;
    }
    Ok(())
}

fn of_pod(
    owner: &Located<'_>,
    pod: PodView<'_>,
    input: &[Located<'_>],
    settings: &Settings,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(sidecar) = pod.sidecar() else {
        if owner.object.wants_sidecar() {
            let why = "has no sidecar: the service is reached without a token";
            found.push(owner.finding(Level::Error, Rule::NoSidecar, why));
        }
        return found;
    };
    if let Ok(ports) = Ports::of(&pod, &settings.component) {
        let this = ProtectedPod {
            owner,
            pod,
            sidecar,
            ports,
            input,
        };
        this.find_probes(&mut found);
        this.find_missing(&mut found);
        let objects: Vec<Object<'_>> = input.iter().map(|each| each.object).collect();
        for why in unserved(&objects, owner.object, &this.pod, ports) {
            found.push(this.finding(Level::Warning, Rule::MonitorUnserved, why));
        }
        network::of_pod(&this, &mut found);
    }
    found
}

impl<'v> ProtectedPod<'v, '_> {
    pub(super) fn finding(&self, level: Level, rule: Rule, why: impl Into<String>) -> Finding {
        self.owner.finding(level, rule, why)
    }

    /// Returns the probes that the sidecar forwards; `None` where the input does not show them.
    fn known_probes(&self) -> Option<Vec<Probe>> {
        if list(self.sidecar.get("env")).any(|each| name_of(each) == PROBES) {
            return parse(&variable(self.sidecar, PROBES)?).ok();
        }
        let mut known = Vec::new();
        for (_, name) in self.pod.needed().filter(|(kind, _)| *kind == "ConfigMap") {
            let map = self.found("ConfigMap", name)?;
            known.extend(parse(text(map.value(), "/data/POSTERN_PROBES")).unwrap_or_default());
        }
        Some(known)
    }

    fn found(&self, kind: &str, name: &str) -> Option<Object<'v>> {
        let mut objects = self.input.iter().map(|other| other.object);
        objects.find(|other| other.is_at(self.owner.object, kind, name))
    }

    /// Finds probes that the sidecar does not forward, and those that go through it: they need a token,
    /// or compete with clients.
    fn find_probes(&self, found: &mut Vec<Finding>) {
        let known = self.known_probes();
        for container in self.pod.containers() {
            for (kind, _) in object::PROBES {
                let Some((_, action)) = container.get(kind).and_then(action) else {
                    continue;
                };
                let port = probes::port_of(action, container);
                let name = text(action, "/path").strip_prefix("/probe/");
                let name = name.filter(|_| port == Some(self.ports.admin));
                if let (Some(name), Some(known)) = (name, &known)
                    && !known.iter().any(|probe| probe.name == name)
                {
                    let why =
                        format!("{kind} requests /probe/{name}, which {PROBES} does not name");
                    found.push(self.finding(Level::Error, Rule::ProbeUnnamed, why));
                }
                if port == Some(self.ports.sidecar) {
                    let why = format!(
                        "{kind} goes through the sidecar, with its clients: send it to the admin port"
                    );
                    found.push(self.finding(Level::Error, Rule::ProbeAmongClients, why));
                }
            }
        }
    }

    /// Finds Secrets and ConfigMaps that the sidecar needs and the input lacks.
    fn find_missing(&self, found: &mut Vec<Finding>) {
        for (kind, name) in self.pod.needed() {
            let Some(object) = self.found(kind, name) else {
                let why =
                    format!("the sidecar needs the {kind} {name}, which is not in this input");
                found.push(self.finding(Level::Warning, Rule::SecretMissing, why));
                continue;
            };
            let holds = |data: &str| object.value().pointer(&format!("/{data}/app-secret"));
            if kind == "Secret" && holds("data").or(holds("stringData")).is_none() {
                let why = format!("the Secret {name} has no key app-secret");
                found.push(self.finding(Level::Error, Rule::SecretMissing, why));
            }
        }
    }
}

fn of_service(each: &Located<'_>, located: &[Located<'_>], found: &mut Vec<Finding>) {
    let service = each.object;
    let mut leads_to_sidecar = false;
    for other in located {
        let Some(pod) = other.object.pod() else {
            continue;
        };
        let is_selected = share_namespace(other.object, service)
            && services::selects(service, other.object, &pod);
        let Some(sidecar) = pod.sidecar().filter(|_| is_selected) else {
            continue;
        };
        leads_to_sidecar = true;
        let own = ports::of_container(sidecar);
        let own: Vec<_> = own.map(|(name, port)| (name.to_owned(), port)).collect();
        for past in services::past(service, &own) {
            let why = format!("{past} of {}", other.object.described());
            found.push(each.finding(Level::Error, Rule::ServicePastSidecar, why));
        }
    }
    if !leads_to_sidecar && service.label(SIDECAR) == Some("true") {
        let why = "is labelled, and selects no pod with a sidecar in this input";
        found.push(each.finding(Level::Warning, Rule::UnlabelledService, why));
    }
}
