//! Ways of the network to a protected pod that are not its sidecar's.

use serde_json::Value;

use super::Findings;
use super::Level::{Error, Note, Warning};
use super::rules::ProtectedPod;
use crate::object::{Object, list, share_namespace, text};
use crate::yaml::Document;
use crate::{ports, services};

/// Finds the ways to the service's own port, and none to the sidecar's.
pub(super) fn of_pod<'d>(this: &ProtectedPod<'d>, found: &mut Findings<'d>) {
    if this.pod.is_task() {
        return;
    }
    let policies = this
        .input
        .iter()
        .filter(|document| isolates(document, this));
    let policies: Vec<&Document> = policies.collect();
    if !policies.is_empty() {
        find_blocked(this, &policies, found);
    }
    let Some(service) = this.ports.service else {
        return;
    };
    if policies.is_empty() {
        let why = format!(
            "no NetworkPolicy of this input covers it: if the service listens on more than 127.0.0.1, port {service} is reached past the sidecar"
        );
        found.add(this.document, Note, "no-network-policy", why);
    }
    let of_pod = this.owner.described();
    for policy in policies {
        let names = |target: &Value| ports::resolved(this.pod, target);
        if rules(policy).any(|rule| names_port(rule, service, names)) {
            let why = format!("allows port {service} of {of_pod}, past the sidecar");
            found.add(policy, Error, "policy-past-sidecar", why);
        } else if rules(policy).any(is_of_all_ports) {
            let why = format!("allows every port of {of_pod}, the service's {service} too");
            found.add(policy, Warning, "policy-past-sidecar", why);
        }
    }
}

/// Returns true for a policy that rejects what it does not allow to a pod.
fn isolates(document: &Document, this: &ProtectedPod<'_>) -> bool {
    let object = Object::new(&document.value);
    let is_policy = object.kind() == "NetworkPolicy"
        && text(object.value(), "/apiVersion").starts_with("networking.k8s.io/");
    let types = object.value().pointer("/spec/policyTypes");
    let is_for_ingress = types.is_none() || list(types).any(|kind| kind == "Ingress");
    let selector = object.value().pointer("/spec/podSelector");
    is_policy
        && is_for_ingress
        && share_namespace(object, this.owner)
        && selector.is_none_or(|selector| services::meets(selector, this.pod))
}

/// Finds a pod whose policies allow other ports than the sidecar's.
fn find_blocked<'d>(this: &ProtectedPod<'d>, policies: &[&Document], found: &mut Findings<'d>) {
    let own = |target: &Value| {
        let mut own = ports::of_container(this.sidecar);
        let named = own.find(|(name, _)| target == *name).map(|(_, port)| port);
        named.or_else(|| ports::resolved(this.pod, target))
    };
    let port = this.ports.sidecar;
    let mut rules = policies.iter().flat_map(|policy| rules(policy));
    if !rules.any(|rule| is_of_all_ports(rule) || names_port(rule, port, own)) {
        let why = format!("its NetworkPolicies do not allow port {port}, which is the sidecar's");
        found.add(this.document, Warning, "policy-blocks-sidecar", why);
    }
}

fn rules(policy: &Document) -> impl Iterator<Item = &Value> {
    list(policy.value.pointer("/spec/ingress"))
}

fn is_of_all_ports(rule: &Value) -> bool {
    list(rule.get("ports")).next().is_none()
}

/// Returns true for a rule with a port, or a range, that holds this one.
fn names_port(rule: &Value, wanted: u16, resolved: impl Fn(&Value) -> Option<u16>) -> bool {
    list(rule.get("ports")).any(|port| {
        let Some(target) = port.get("port").filter(|target| !target.is_null()) else {
            return ports::is_tcp(port);
        };
        let Some(first) = resolved(target) else {
            return false;
        };
        let last = port.get("endPort").and_then(Value::as_u64);
        ports::is_tcp(port)
            && (u64::from(first)..=last.unwrap_or(first.into())).contains(&wanted.into())
    })
}
