//! The rules of `lint`.

use serde_json::Value;

use wire::settings::probes::{Probe, parse};

use super::Level::{Error, Warning};
use super::{Finding, Findings, network};
use crate::annotations::SIDECAR;
use crate::monitors::unserved;
use crate::object::{self, Object, action, list, name_of, text, variable};
use crate::pod::add_sidecar;
use crate::ports::Ports;
use crate::settings::{PROBES, Settings};
use crate::yaml::Document;
use crate::{probes, services};

/// A pod with its sidecar, its object and the whole input.
pub(super) struct ProtectedPod<'d> {
    pub(super) document: &'d Document,
    /// The object that has the pod.
    pub(super) owner: Object<'d>,
    pub(super) pod: Object<'d>,
    pub(super) sidecar: &'d Value,
    pub(super) ports: Ports,
    pub(super) input: &'d [Document],
}

/// Reads all documents as one set of manifests, and returns the findings in their order.
pub(crate) fn lint<'d>(input: &'d [Document], settings: &Settings) -> Vec<Finding<'d>> {
    let mut found = Findings::default();
    let objects: Vec<Object<'d>> = objects(input).collect();
    for document in input {
        let owner = Object::new(&document.value);
        let wants_sidecar = owner.pod().is_some() && owner.wants_sidecar();
        // What `inject` rejects, also where a sidecar is there already.
        let rejected = owner.check().and_then(|()| {
            let is_meant = owner.is_protected() || wants_sidecar;
            let mut copy = is_meant.then(|| document.value.clone());
            let added = copy.as_mut();
            added
                .map(|copy| add_sidecar(copy, settings, objects.iter().copied()))
                .transpose()
        });
        if let Err(why) = rejected {
            found.add(document, Error, "rejected", why);
        }
        if owner.kind() == "Service" {
            of_service(document, &objects, &mut found);
        }
        let protected = ProtectedPod::new(document, input);
        if let Some(this) = protected {
            this.find_probes(&mut found);
            this.find_missing(&mut found);
            for why in unserved(&objects, owner, this.ports) {
                found.add(document, Warning, "monitor-unserved", why);
            }
            network::of_pod(&this, &mut found);
        } else if wants_sidecar && !owner.is_protected() {
            let why = "has no sidecar: the service is reached without a token";
            found.add(document, Error, "no-sidecar", why);
        }
    }
    found.0
}

pub(super) fn objects(input: &[Document]) -> impl Iterator<Item = Object<'_>> {
    input.iter().map(|document| Object::new(&document.value))
}

impl<'d> ProtectedPod<'d> {
    fn new(document: &'d Document, input: &'d [Document]) -> Option<Self> {
        let owner = Object::new(&document.value);
        let pod = owner.pod()?;
        Some(Self {
            document,
            owner,
            pod,
            sidecar: pod.sidecar()?,
            ports: Ports::of(pod).ok()?,
            input,
        })
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

    fn found(&self, kind: &str, name: &str) -> Option<Object<'d>> {
        objects(self.input).find(|other| other.is_at(self.owner, kind, name))
    }

    /// Finds probes that the sidecar does not forward, and those that go through it: they need a token,
    /// or compete with clients.
    fn find_probes(&self, found: &mut Findings<'d>) {
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
                    found.add(self.document, Error, "probe-unnamed", why);
                }
                if port == Some(self.ports.sidecar) {
                    let why = format!(
                        "{kind} goes through the sidecar, with its clients: send it to the admin port"
                    );
                    found.add(self.document, Error, "probe-among-clients", why);
                }
            }
        }
    }

    /// Finds Secrets and ConfigMaps that the sidecar needs and the input lacks.
    fn find_missing(&self, found: &mut Findings<'d>) {
        for (kind, name) in self.pod.needed() {
            let Some(object) = self.found(kind, name) else {
                let why =
                    format!("the sidecar needs the {kind} {name}, which is not in this input");
                found.add(self.document, Warning, "secret-missing", why);
                continue;
            };
            let holds = |data: &str| object.value().pointer(&format!("/{data}/app-secret"));
            if kind == "Secret" && holds("data").or(holds("stringData")).is_none() {
                let why = format!("the Secret {name} has no key app-secret");
                found.add(self.document, Error, "secret-missing", why);
            }
        }
    }
}

fn of_service<'d>(document: &'d Document, input: &[Object<'d>], found: &mut Findings<'d>) {
    let service = Object::new(&document.value);
    let mut leads_to_sidecar = false;
    let selected = input
        .iter()
        .filter(|other| other.is_protected() && services::selects(service, **other));
    for other in selected {
        leads_to_sidecar = true;
        let ports = other.pod().and_then(|pod| Ports::of(pod).ok());
        for past in services::past(service, ports.unwrap_or(Ports::USUAL)) {
            let why = format!("{past} of {}", other.described());
            found.add(document, Error, "service-past-sidecar", why);
        }
    }
    if !leads_to_sidecar && service.label(SIDECAR) == Some("true") {
        let why = "is labelled, and selects no pod with a sidecar in this input";
        found.add(document, Warning, "unlabelled-service", why);
    }
}
