//! Pod Security Standards: the sidecar meets `restricted`, the whole pod what its namespace enforces.

use serde_json::Value;

use super::protected_pod::ProtectedPod;
use super::{Finding, Level, Rule};
use crate::object::{PodView, list, name_of, text};

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// Capabilities that `baseline` lets a container add.
const BASELINE: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Volumes that `restricted` allows.
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Compares the sidecar, and the pod where its namespace is in the input, with the standards.
pub(super) fn of_pod(this: &ProtectedPod<'_, '_>, found: &mut Vec<Finding>) {
    let (pod, sidecar) = (&this.pod, this.sidecar);
    let mut add = |why: String| {
        found.push(this.finding(Level::Error, Rule::PodSecurity, "", why));
    };
    if let Some(lack) = lack(pod, sidecar) {
        add(format!("the sidecar {lack}"));
    }
    let standard = enforced(this);
    if matches!(standard, "baseline" | "restricted") {
        let general = of_pod_itself(pod).into_iter().map(ToOwned::to_owned);
        let volumes = of_volumes(pod, standard);
        let others = containers(pod).filter(|other| !std::ptr::eq(*other, sidecar));
        let others = others.filter_map(|other| {
            let lack = (standard == "restricted")
                .then(|| lack(pod, other))
                .flatten();
            let violation = privilege(other).or(lack)?;
            Some(format!("container {} {violation}", name_of(other)))
        });
        for violation in general.chain(volumes).chain(others) {
            add(format!(
                "its namespace enforces {standard}, which rejects the pod: {violation}"
            ));
        }
    }
}

/// Returns the standard that the object's namespace enforces; empty where the input lacks it.
fn enforced<'v>(this: &ProtectedPod<'v, '_>) -> &'v str {
    let own = this.owner.object.namespace();
    let mut objects = this.input.iter().map(|other| other.object);
    let namespace = objects.find(|object| object.kind() == "Namespace" && object.name() == own);
    let label = namespace.and_then(|namespace| namespace.label(ENFORCE));
    label.unwrap_or_default()
}

fn containers<'v>(pod: &PodView<'v>) -> impl Iterator<Item = &'v Value> {
    pod.init_containers().chain(pod.containers())
}

fn of_pod_itself(pod: &PodView<'_>) -> Option<&'static str> {
    ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .find(|name| pod.spec(name) == Some(&Value::Bool(true)))
}

fn of_volumes(pod: &PodView<'_>, standard: &str) -> Option<String> {
    let is_allowed = |source: &str| match standard {
        "restricted" => VOLUMES.contains(&source),
        _ => source != "hostPath",
    };
    list(pod.spec("volumes")).find_map(|volume| {
        let mut sources = volume.as_object()?.keys().filter(|name| *name != "name");
        let source = sources.find(|source| !is_allowed(source))?;
        Some(format!("volume {} is a {source}", name_of(volume)))
    })
}

/// Returns what `baseline` forbids a container.
fn privilege(container: &Value) -> Option<String> {
    let own = |pointer: &str| container.pointer(&format!("/securityContext/{pointer}"));
    if own("privileged") == Some(&Value::Bool(true)) {
        return Some("is privileged".to_owned());
    }
    if text(container, "/securityContext/seccompProfile/type") == "Unconfined" {
        return Some("has seccompProfile Unconfined".to_owned());
    }
    let mut ports = list(container.get("ports"));
    if ports.any(|port| port.get("hostPort").and_then(Value::as_u64).unwrap_or(0) != 0) {
        return Some("has a hostPort".to_owned());
    }
    let mut added = list(own("capabilities/add")).filter_map(Value::as_str);
    let added = added.find(|added| !BASELINE.contains(added))?;
    Some(format!("adds the capability {added}"))
}

/// Returns what a container lacks that `restricted` requires.
fn lack(pod: &PodView<'_>, container: &Value) -> Option<String> {
    let of_pod = pod.spec("securityContext");
    let own = |pointer: &str| container.pointer(&format!("/securityContext/{pointer}"));
    let either = |pointer: &str| {
        own(pointer).or_else(|| of_pod.and_then(|of_pod| of_pod.pointer(&format!("/{pointer}"))))
    };
    let seccomp = either("seccompProfile/type").and_then(Value::as_str);
    let lacks = [
        (
            either("runAsNonRoot") == Some(&Value::Bool(true)),
            "runAsNonRoot: true",
        ),
        (
            either("runAsUser").and_then(Value::as_u64) != Some(0),
            "a runAsUser other than 0",
        ),
        (
            matches!(seccomp, Some("RuntimeDefault" | "Localhost")),
            "seccompProfile RuntimeDefault",
        ),
        (
            own("allowPrivilegeEscalation") == Some(&Value::Bool(false)),
            "allowPrivilegeEscalation: false",
        ),
        (
            list(own("capabilities/drop")).any(|dropped| dropped == "ALL"),
            "capabilities.drop: [ALL]",
        ),
        (
            list(own("capabilities/add")).all(|added| added == "NET_BIND_SERVICE"),
            "capabilities.add of NET_BIND_SERVICE alone",
        ),
    ];
    let lacks = lacks.into_iter().filter(|(is_met, _)| !is_met);
    let lacks: Vec<&str> = lacks.map(|(_, what)| what).collect();
    (!lacks.is_empty()).then(|| format!("lacks {}", lacks.join(", ")))
}
