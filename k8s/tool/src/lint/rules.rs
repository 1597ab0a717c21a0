//! The rules of `lint`.

use std::collections::BTreeSet;

use http::Method;
use serde_json::Value;
use wire::http::path_patterns::{ContextPath, PassList};
use wire::http::request_path::RequestPath;
use wire::settings::{context_path, pass_list};

use super::protected_pod::ProtectedPod;
use super::{Finding, Level, Located, Rule, network};
use crate::annotations::{GUARDED, SIDECAR};
use crate::object::{PodView, list, name_of, share_namespace, text};
use crate::settings::{APP_NAME, PUBLIC_PATH};
use crate::{ports, probes, services};

const GRACE_PERIOD: u64 = 30;
const PROBES: [&str; 3] = ["startupProbe", "readinessProbe", "livenessProbe"];

/// Returns the findings in the order of the input.
pub(super) fn findings(located: &[Located<'_>]) -> Vec<Finding> {
    let guarded = guarded_namespaces(located);
    let mut found = Vec::new();
    for each in located {
        if let Err(unknown) = each.object.check_label() {
            let why = unknown.reason;
            found.push(each.finding(Level::Error, Rule::UnknownLabel, why));
        }
        if let Some(why) = each.object.pods_elsewhere() {
            found.push(each.finding(Level::Error, Rule::NoSidecar, why));
        }
        match each.object.pod() {
            Some(pod) => match pod.sidecar() {
                Some(sidecar) => {
                    let (owner, input) = (each, located);
                    let this = ProtectedPod {
                        owner,
                        pod,
                        sidecar,
                        input,
                    };
                    of_pod(&this, &mut found);
                }
                None => found.extend(of_unprotected(each, &pod, &guarded)),
            },
            None if each.object.kind() == "Service" => of_service(each, located, &mut found),
            None => {}
        }
    }
    found
}

/// Returns the namespaces of the input whose label requires one of every workload.
fn guarded_namespaces<'v>(located: &[Located<'v>]) -> BTreeSet<&'v str> {
    let objects = located.iter().map(|each| each.object);
    objects
        .filter(|object| object.kind() == "Namespace" && object.label(GUARDED) == Some("true"))
        .map(|object| object.name())
        .collect()
}

/// Returns the finding of a workload without a sidecar.
fn of_unprotected(
    each: &Located<'_>,
    pod: &PodView<'_>,
    guarded: &BTreeSet<&str>,
) -> Option<Finding> {
    let object = each.object;
    let labels = [object.label(SIDECAR), pod.label(SIDECAR)];
    let is_ours = pod.label("app.kubernetes.io/part-of") == Some("postern");
    let (rule, why) = if object.wants_sidecar() {
        let why = format!(
            "is labelled {SIDECAR}: \"true\" and has no sidecar: the service is reached without a token"
        );
        (Rule::NoSidecar, why)
    } else if guarded.contains(object.namespace()) && labels == [None, None] && !is_ours {
        let why = format!(
            "its namespace is guarded: label it {SIDECAR}: \"true\", or \"false\" if no token is required"
        );
        (Rule::UnlabelledWorkload, why)
    } else {
        return None;
    };
    Some(each.finding(Level::Error, rule, why))
}

/// Checks a pod that has a sidecar.
fn of_pod(this: &ProtectedPod<'_, '_>, found: &mut Vec<Finding>) {
    let own: Vec<u16> = ports::of_container(this.sidecar)
        .map(|(_, port)| port)
        .collect();
    for other in this.pod.others() {
        let taken = ports::of_container(other).find(|(_, port)| own.contains(port));
        if let Some((_, port)) = taken {
            let name = name_of(other);
            let why = format!("container {name} declares port {port}, which is the sidecar's");
            found.push(this.finding(Level::Error, Rule::PortTaken, why));
        }
    }
    let grace = this.pod.spec("terminationGracePeriodSeconds");
    if !this.pod.is_task()
        && let Some(grace) = grace
            .and_then(Value::as_u64)
            .filter(|grace| *grace < GRACE_PERIOD)
    {
        let why = format!("{grace} s: the sidecar's stop takes up to {GRACE_PERIOD}");
        found.push(this.finding(Level::Warning, Rule::GracePeriod, why));
    }
    of_probes(this, found);
    of_references(this, found);
    network::of_pod(this, found);
}

/// Finds probes that the sidecar rejects: without a token, on a path that is not passed.
fn of_probes(this: &ProtectedPod<'_, '_>, found: &mut Vec<Finding>) {
    let Some(listens) = this.sidecar_port() else {
        return;
    };
    let patterns = this.variable(PUBLIC_PATH);
    // They may be in a ConfigMap that is not in the input.
    if patterns.is_none() && !this.has_all_settings() {
        return;
    }
    let Ok(pass) = patterns.map_or(Ok(PassList::default()), pass_list) else {
        return;
    };
    let name = this.variable(APP_NAME).unwrap_or_default();
    let Ok(context) = context_path(name) else {
        return;
    };
    for container in this.pod.containers() {
        for kind in PROBES {
            let Some(http) = container.get(kind).and_then(|probe| probe.get("httpGet")) else {
                continue;
            };
            let path = probes::path_of(http);
            if probes::port_of(http, container) != Some(listens) || passes(&pass, &context, path) {
                continue;
            }
            let why = format!("{kind} goes through the sidecar to {path}, which needs a token");
            found.push(this.finding(Level::Error, Rule::ProbeRejected, why));
        }
    }
}

fn passes(pass: &PassList, context: &ContextPath, path: &str) -> bool {
    let parsed = RequestPath::parse(path.as_bytes()).ok();
    let canonical = parsed.as_ref().and_then(RequestPath::canonical);
    let below = canonical.and_then(|canonical| context.strip(canonical));
    below.is_some_and(|below| pass.find_for(Some(&Method::GET), below).is_some())
}

/// Finds Secrets and ConfigMaps that the sidecar mounts and the input lacks.
fn of_references(this: &ProtectedPod<'_, '_>, found: &mut Vec<Finding>) {
    let missing = |kind: &str, name: &str| {
        let why = format!("the sidecar needs the {kind} {name}, which is not in this input");
        this.finding(Level::Warning, Rule::SecretMissing, why)
    };
    for name in this.config_maps() {
        if !name.is_empty() && this.known("ConfigMap", name).is_none() {
            found.push(missing("ConfigMap", name));
        }
    }
    let mounts = list(this.sidecar.get("volumeMounts")).map(name_of);
    let mounts: BTreeSet<&str> = mounts.collect();
    for volume in list(this.pod.spec("volumes")).filter(|volume| mounts.contains(name_of(volume))) {
        let name = text(volume, "/secret/secretName");
        if name.is_empty() {
            continue;
        }
        let Some(secret) = this.known("Secret", name) else {
            found.push(missing("Secret", name));
            continue;
        };
        let holds = |data: &str| secret.value().pointer(&format!("/{data}/app-secret"));
        if name_of(volume) == "postern-sidecar-secret"
            && holds("data").or(holds("stringData")).is_none()
        {
            let why = format!("the Secret {name} has no key app-secret");
            found.push(this.finding(Level::Error, Rule::SecretMissing, why));
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
            found.push(each.finding(
                Level::Error,
                Rule::ServicePastSidecar,
                format!("{past} of {}", other.object.described()),
            ));
        }
    }
    if !leads_to_sidecar && service.label(SIDECAR) == Some("true") {
        let why = "is labelled, and selects no pod with a sidecar in this input";
        found.push(each.finding(Level::Warning, Rule::UnlabelledService, why));
    }
}
