//! The rules of `lint`.

use std::collections::BTreeSet;

use contract::http::path_patterns::{ContextPath, PassList};
use contract::http::request_path::RequestPath;
use http::Method;
use serde_json::Value;

use super::{Finding, Level, Placed, Rule, network, security};
use crate::kubernetes::annotations::{GUARDED, SIDECAR};
use crate::kubernetes::object::{Object, PodView, list, name_of, share_namespace, text};
use crate::kubernetes::settings::{PASS, pass_list};
use crate::kubernetes::{ports, probes, services};

const GRACE_PERIOD: u64 = 30;
const PROBES: [&str; 3] = ["startupProbe", "readinessProbe", "livenessProbe"];

/// Returns the findings in the order of the input.
pub(super) fn findings(placed: &[Placed<'_>]) -> Vec<Finding> {
    let guarded = guarded_namespaces(placed);
    let mut found = Vec::new();
    for each in placed {
        if let Err(unknown) = each.object.check_label() {
            let why = unknown.reason;
            found.push(each.finding(Level::Error, Rule::UnknownLabel, "/metadata", why));
        }
        if let Some(why) = each.object.pods_elsewhere() {
            found.push(each.finding(Level::Error, Rule::NoSidecar, "/metadata", why));
        }
        match each.object.pod() {
            Some(pod) => of_workload(each, &pod, placed, &guarded, &mut found),
            None if each.object.kind() == "Service" => of_service(each, placed, &mut found),
            None => {}
        }
    }
    found
}

/// Returns the namespaces of the input whose label requires one of every workload.
fn guarded_namespaces<'v>(placed: &[Placed<'v>]) -> BTreeSet<&'v str> {
    let objects = placed.iter().map(|each| each.object);
    objects
        .filter(|object| object.kind() == "Namespace" && object.label(GUARDED) == Some("true"))
        .map(|object| object.name())
        .collect()
}

fn of_workload(
    each: &Placed<'_>,
    pod: &PodView<'_>,
    placed: &[Placed<'_>],
    guarded: &BTreeSet<&str>,
    found: &mut Vec<Finding>,
) {
    let object = each.object;
    match pod.sidecar() {
        Some(sidecar) => of_pod(each, pod, sidecar, placed, found),
        None if object.wants_sidecar() => found.push(each.finding(
            Level::Error,
            Rule::NoSidecar,
            "/metadata",
            format!("is labelled {SIDECAR}: \"true\" and has no sidecar: the service is reached without a token"),
        )),
        None => {
            let labels = [object.label(SIDECAR), pod.label(SIDECAR)];
            let is_ours = pod.label("app.kubernetes.io/part-of") == Some("postern");
            if guarded.contains(object.namespace()) && labels == [None, None] && !is_ours {
                found.push(each.finding(
                    Level::Error,
                    Rule::UnlabelledWorkload,
                    "/metadata",
                    format!("its namespace is guarded: label it {SIDECAR}: \"true\", or \"false\" if no token is required"),
                ));
            }
        }
    }
}

/// Checks a pod that has a sidecar.
fn of_pod(
    each: &Placed<'_>,
    pod: &PodView<'_>,
    sidecar: &Value,
    placed: &[Placed<'_>],
    found: &mut Vec<Finding>,
) {
    let spec = format!("{}/spec", pod.path);
    let own: Vec<u16> = ports::of_container(sidecar).map(|(_, port)| port).collect();
    for other in pod.others() {
        let taken = ports::of_container(other).find(|(_, port)| own.contains(port));
        if let Some((_, port)) = taken {
            let name = name_of(other);
            let why = format!("container {name} declares port {port}, which is the sidecar's");
            found.push(each.finding(Level::Error, Rule::PortTaken, &spec, why));
        }
    }
    let grace = pod.spec("terminationGracePeriodSeconds");
    if !pod.is_task()
        && let Some(grace) = grace
            .and_then(Value::as_u64)
            .filter(|grace| *grace < GRACE_PERIOD)
    {
        let pointer = format!("{spec}/terminationGracePeriodSeconds");
        let why = format!("{grace} s: the sidecar's stop takes up to {GRACE_PERIOD}");
        found.push(each.finding(Level::Warning, Rule::GracePeriod, &pointer, why));
    }
    of_probes(each, pod, sidecar, placed, found);
    of_references(each, pod, sidecar, placed, found);
    network::of_pod(each, pod, sidecar, placed, found);
    security::of_pod(each, pod, sidecar, placed, found);
}

/// Finds probes that the sidecar rejects: without a token, on a path that is not passed.
fn of_probes(
    each: &Placed<'_>,
    pod: &PodView<'_>,
    sidecar: &Value,
    placed: &[Placed<'_>],
    found: &mut Vec<Finding>,
) {
    let Some(listens) = sidecar_port(sidecar) else {
        return;
    };
    let variable = |name: &str| variable(each, pod, sidecar, placed, name);
    let patterns = variable(PASS);
    // They may be in a ConfigMap that is not in the input.
    if patterns.is_none() && !has_all_settings(each, sidecar, placed) {
        return;
    }
    let Ok(pass) = pass_list(patterns.unwrap_or_default()) else {
        return;
    };
    let name = variable("POSTERN_APP_NAME").unwrap_or_default();
    let Ok(context) = name.parse::<ContextPath>() else {
        return;
    };
    for (number, container) in pod.containers().enumerate() {
        for kind in PROBES {
            let Some(http) = container.get(kind).and_then(|probe| probe.get("httpGet")) else {
                continue;
            };
            let path = probes::path_of(http);
            if probes::port_of(http, container) != Some(listens) || passes(&pass, &context, path) {
                continue;
            }
            let pointer = format!("{}/spec/containers/{number}/{kind}/httpGet", pod.path);
            let why = format!("{kind} goes through the sidecar to {path}, which needs a token");
            found.push(each.finding(Level::Error, Rule::ProbeRejected, &pointer, why));
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
fn of_references(
    each: &Placed<'_>,
    pod: &PodView<'_>,
    sidecar: &Value,
    placed: &[Placed<'_>],
    found: &mut Vec<Finding>,
) {
    let known = |kind: &str, name: &str| known(each, placed, kind, name);
    let spec = format!("{}/spec", pod.path);
    let missing = |kind: &str, name: &str| {
        let why = format!("the sidecar needs the {kind} {name}, which is not in this input");
        each.finding(Level::Warning, Rule::SecretMissing, &spec, why)
    };
    for source in list(sidecar.get("envFrom")) {
        let name = text(source, "/configMapRef/name");
        if !name.is_empty() && known("ConfigMap", name).is_none() {
            found.push(missing("ConfigMap", name));
        }
    }
    let mounts = list(sidecar.get("volumeMounts")).map(name_of);
    let mounts: BTreeSet<&str> = mounts.collect();
    for volume in list(pod.spec("volumes")).filter(|volume| mounts.contains(name_of(volume))) {
        let name = text(volume, "/secret/secretName");
        if name.is_empty() {
            continue;
        }
        let Some(secret) = known("Secret", name) else {
            found.push(missing("Secret", name));
            continue;
        };
        let holds = |data: &str| secret.value().pointer(&format!("/{data}/app-secret"));
        if name_of(volume) == "postern-sidecar-secret"
            && holds("data").or(holds("stringData")).is_none()
        {
            let why = format!("the Secret {name} has no key app-secret");
            found.push(each.finding(Level::Error, Rule::SecretMissing, &spec, why));
        }
    }
}

fn of_service(each: &Placed<'_>, placed: &[Placed<'_>], found: &mut Vec<Finding>) {
    let service = each.object;
    let mut leads_to_sidecar = false;
    for other in placed {
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
            let pointer = format!("/spec/ports/{}", past.number);
            found.push(each.finding(
                Level::Error,
                Rule::ServicePastSidecar,
                &pointer,
                format!("{} of {}", past.reason, other.object.described()),
            ));
        }
    }
    if !leads_to_sidecar && service.label(SIDECAR) == Some("true") {
        let why = "is labelled, and selects no pod with a sidecar in this input";
        found.push(each.finding(Level::Warning, Rule::UnlabelledService, "/spec", why));
    }
}

pub(super) fn sidecar_port(sidecar: &Value) -> Option<u16> {
    let mut ports = ports::of_container(sidecar);
    ports
        .find(|(name, _)| *name == "sidecar")
        .map(|(_, port)| port)
}

/// Returns an object of the pod's namespace.
fn known<'v>(
    each: &Placed<'_>,
    placed: &[Placed<'v>],
    kind: &str,
    name: &str,
) -> Option<Object<'v>> {
    placed.iter().map(|other| other.object).find(|other| {
        other.kind() == kind && other.name() == name && share_namespace(*other, each.object)
    })
}

/// Returns true if the input holds every ConfigMap of the container's settings.
fn has_all_settings(each: &Placed<'_>, container: &Value, placed: &[Placed<'_>]) -> bool {
    list(container.get("envFrom")).all(|source| {
        let name = text(source, "/configMapRef/name");
        known(each, placed, "ConfigMap", name).is_some()
    })
}

/// Returns a variable that the container sets to a text, or to a label of its pod, or takes from a
/// ConfigMap of the input: of several the last one counts.
pub(super) fn variable<'v>(
    each: &Placed<'_>,
    pod: &PodView<'v>,
    container: &'v Value,
    placed: &[Placed<'v>],
    name: &str,
) -> Option<&'v str> {
    let variables: Vec<&Value> = list(container.get("env")).collect();
    let mut last_first = variables.into_iter().rev();
    let Some(found) = last_first.find(|variable| name_of(variable) == name) else {
        let sources: Vec<&Value> = list(container.get("envFrom")).collect();
        return sources.into_iter().rev().find_map(|source| {
            let map = text(source, "/configMapRef/name");
            let map = known(each, placed, "ConfigMap", map)?;
            map.value().get("data")?.get(name)?.as_str()
        });
    };
    let label = text(found, "/valueFrom/fieldRef/fieldPath")
        .strip_prefix("metadata.labels['")
        .and_then(|label| label.strip_suffix("']"));
    match label {
        Some(label) => pod.label(label),
        None => found.get("value")?.as_str(),
    }
}
