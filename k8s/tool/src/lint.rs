//! Findings in manifests that another tool has made: what looks protected and is not.

mod network;

use std::fmt::{self, Display, Formatter};

use runtime::named_enum;
use wire::settings::probes::{Probe, parse};

use self::Level::{Error, Warning};
use crate::annotations::SIDECAR;
use crate::inject::of_workload;
use crate::monitors::unserved;
use crate::object::{Object, actions, list, name_of, objects, share_namespace, text, variable};
use crate::ports::{self, Ports, SIDECAR_PORT};
use crate::settings::{PROBES, Settings};
use crate::yaml::Document;
use crate::{probes, services};

named_enum! {
    /// The weight of a finding.
    pub(crate) enum Level {
        /// The service is reached without a token, or not at all.
        Error = "error",
        /// It cannot be decided from these manifests, or loses requests.
        Warning = "warning",
        /// It is right only if the service does its part.
        Note = "note",
    }
}

/// One finding.
pub(crate) struct Finding<'d> {
    pub(crate) document: &'d Document,
    pub(crate) level: Level,
    /// As in docs/kubernetes/inject.md.
    rule: &'static str,
    message: String,
}

impl Finding<'_> {
    /// Returns the object and the reason.
    pub(crate) fn of_object(&self) -> String {
        format!(
            "{}: {}",
            Object(&self.document.value).described(),
            self.message
        )
    }
}

impl Display for Finding<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (location, level) = (&self.document.location, self.level.name());
        let (of_object, rule) = (self.of_object(), self.rule);
        write!(f, "{location}: {level}: {of_object} [{rule}]")
    }
}

/// Level, rule and reason of each finding about one object.
type Findings = Vec<(Level, &'static str, String)>;

/// A pod with its sidecar, its object and the whole input.
struct ProtectedPod<'d> {
    /// The object that has the pod.
    owner: Object<'d>,
    pod: Object<'d>,
    ports: Ports,
    input: &'d [Document],
}

/// Reads all documents as one set of manifests, and returns the findings in their order.
pub(crate) fn lint<'d>(input: &'d [Document], settings: &Settings) -> Vec<Finding<'d>> {
    let of_document = |document: &'d Document| {
        let found = of_object(Object(&document.value), input, settings).into_iter();
        found.map(move |(level, rule, message)| Finding {
            document,
            level,
            rule,
            message,
        })
    };
    input.iter().flat_map(of_document).collect()
}

fn of_object(owner: Object<'_>, input: &[Document], settings: &Settings) -> Findings {
    let mut found = Findings::new();
    let wants_sidecar = owner.pod().is_some() && owner.wants_sidecar();
    // What `inject` rejects, also where a sidecar is there already.
    let rejected = of_workload(owner, input, settings).err();
    found.extend(rejected.map(|why| (Error, "rejected", why)));
    if owner.kind() == "Service" {
        find_past_sidecar(owner, input, &mut found);
    }
    if let Some(this) = ProtectedPod::new(owner, input) {
        this.find_probes(&mut found);
        this.find_missing(&mut found);
        let unserved = unserved(input, owner, this.pod, this.ports).into_iter();
        found.extend(unserved.map(|why| (Warning, "monitor-unserved", why)));
        network::find(&this, &mut found);
    } else if wants_sidecar && !owner.is_protected() {
        let why = "has no sidecar: the service is reached without a token";
        found.push((Error, "no-sidecar", why.to_owned()));
    }
    found
}

fn find_past_sidecar(service: Object<'_>, input: &[Document], found: &mut Findings) {
    let mut is_alone = service.label(SIDECAR) == Some("true");
    for other in objects(input).filter(|other| services::selects(service, *other)) {
        let Some((_, ports)) = ports::of_protected(other) else {
            continue;
        };
        is_alone = false;
        let past = services::past(service, ports.admin).into_iter();
        let line = |past| format!("{past} of {}", other.described());
        found.extend(past.map(|past| (Error, "service-past-sidecar", line(past))));
    }
    if is_alone {
        let why = "is labelled, and selects no pod with a sidecar in this input";
        found.push((Warning, "unlabelled-service", why.to_owned()));
    }
}

impl<'d> ProtectedPod<'d> {
    fn new(owner: Object<'d>, input: &'d [Document]) -> Option<Self> {
        let (pod, ports) = ports::of_protected(owner)?;
        Some(Self {
            owner,
            pod,
            ports,
            input,
        })
    }

    /// Returns the probes that the sidecar forwards; `None` where the input does not show them.
    fn known_probes(&self) -> Option<Vec<Probe>> {
        let sidecar = self.pod.sidecar()?;
        if list(&sidecar["env"]).any(|each| name_of(each) == PROBES) {
            return parse(&variable(sidecar, PROBES)?).ok();
        }
        let mut known = Vec::new();
        for (_, name) in self.pod.needed().filter(|(kind, _)| *kind == "ConfigMap") {
            let map = self.found("ConfigMap", name)?;
            known.extend(parse(text(map.0, "/data/POSTERN_PROBES")).unwrap_or_default());
        }
        Some(known)
    }

    fn found(&self, kind: &str, name: &str) -> Option<Object<'d>> {
        let mut all = objects(self.input).filter(|other| share_namespace(*other, self.owner));
        all.find(|other| other.kind() == kind && other.name() == name)
    }

    /// Finds probes that the sidecar does not forward, and those that go through it: they need a token,
    /// or compete with clients.
    fn find_probes(&self, found: &mut Findings) {
        let known = self.known_probes();
        for container in self.pod.containers() {
            for (kind, _, action) in actions(container) {
                let port = probes::port_of(action, container);
                let name = text(action, "/path").strip_prefix("/probe/");
                if port == Some(SIDECAR_PORT) {
                    let why =
                        "goes through the sidecar, with its clients: send it to the admin port";
                    found.push((Error, "probe-among-clients", format!("{kind} {why}")));
                } else if let (Some(name), Some(known)) = (name, &known)
                    && port == Some(self.ports.admin)
                    && !known.iter().any(|probe| probe.name == name)
                {
                    let why =
                        format!("{kind} requests /probe/{name}, which {PROBES} does not name");
                    found.push((Error, "probe-unnamed", why));
                }
            }
        }
    }

    /// Finds Secrets and ConfigMaps that the sidecar needs and the input lacks.
    fn find_missing(&self, found: &mut Findings) {
        for (kind, name) in self.pod.needed() {
            let Some(object) = self.found(kind, name) else {
                let why = "is not in this input, and no pod starts without it: create it first";
                let why = format!("the {kind} {name} {why}");
                found.push((Warning, "secret-missing", why));
                continue;
            };
            let holds = |data: &str| !object.0[data]["app-secret"].is_null();
            if kind == "Secret" && !holds("data") && !holds("stringData") {
                let why = format!("the Secret {name} has no key app-secret");
                found.push((Error, "secret-missing", why));
            }
        }
    }
}
