//! Ways of the network to a protected pod that are not its sidecar's.

use serde_json::Value;

use super::Level::{Error, Note, Warning};
use super::{Findings, ProtectedPod};
use crate::object::{Object, list, objects, share_namespace, text};
use crate::ports::SIDECAR_PORT;
use crate::{ports, services};

/// Finds the ways to the service's own port, and none to the sidecar's.
pub(super) fn find(this: &ProtectedPod<'_>, found: &mut Findings) {
    if this.pod.is_task() {
        return;
    }
    let policies = objects(this.input).filter(|policy| isolates(*policy, this));
    let policies: Vec<Object<'_>> = policies.collect();
    let own = |target: &Value| {
        let mut own = this.pod.sidecar().into_iter().flat_map(ports::of_container);
        let named = own.find(|(name, _)| target == *name).map(|(_, port)| port);
        named.or_else(|| ports::resolved(this.pod, target))
    };
    let port = SIDECAR_PORT;
    let mut all = policies.iter().flat_map(|policy| rules(*policy));
    let is_way = |rule| is_of_all_ports(rule) || names_port(rule, port, own);
    if !policies.is_empty() && !all.any(is_way) {
        let why = format!("its NetworkPolicies do not allow port {port}, which is the sidecar's");
        found.push((Warning, "policy-blocks-sidecar", why));
    }
    let Some(service) = this.ports.service else {
        return;
    };
    if policies.is_empty() {
        let why = format!(
            "no NetworkPolicy of this input covers it: if the service listens on more than 127.0.0.1, port {service} is reached past the sidecar"
        );
        found.push((Note, "no-network-policy", why));
    }
    let names = |target: &Value| ports::resolved(this.pod, target);
    for policy in policies {
        let name = policy.described();
        if rules(policy).any(|rule| names_port(rule, service, names)) {
            let why = format!("{name} allows port {service}, past the sidecar");
            found.push((Error, "policy-past-sidecar", why));
        } else if rules(policy).any(is_of_all_ports) {
            let why = format!("{name} allows every port, the service's {service} too");
            found.push((Warning, "policy-past-sidecar", why));
        }
    }
}

/// Returns true for a policy that rejects what it does not allow to a pod.
fn isolates(policy: Object<'_>, this: &ProtectedPod<'_>) -> bool {
    let types = policy.spec("policyTypes");
    policy.kind() == "NetworkPolicy"
        && text(policy.0, "/apiVersion").starts_with("networking.k8s.io/")
        && (types.is_null() || list(types).any(|kind| kind == "Ingress"))
        && share_namespace(policy, this.owner)
        && services::meets(policy.spec("podSelector"), this.pod)
}

fn rules(policy: Object<'_>) -> impl Iterator<Item = &Value> {
    list(policy.spec("ingress"))
}

fn is_of_all_ports(rule: &Value) -> bool {
    list(&rule["ports"]).next().is_none()
}

/// Returns true for a rule with a port, or a range, that holds this one.
fn names_port(rule: &Value, wanted: u16, resolved: impl Fn(&Value) -> Option<u16>) -> bool {
    list(&rule["ports"])
        .filter(|port| ports::is_tcp(port))
        .any(|port| {
            let target = &port["port"];
            let last = port["endPort"].as_u64();
            target.is_null()
                || resolved(target).is_some_and(|first| {
                    (u64::from(first)..=last.unwrap_or(first.into())).contains(&wanted.into())
                })
        })
}
