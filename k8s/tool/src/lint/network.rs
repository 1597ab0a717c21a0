//! Ways of the network to a protected pod that are not its sidecar's.

use serde_json::Value;

use super::rules::ProtectedPod;
use super::{Finding, Level, Located, Rule};
use crate::object::{Object, list, share_namespace, text};
use crate::{ports, services};

/// Finds the ways to the service's own port, and none to the sidecar's.
pub(super) fn of_pod(this: &ProtectedPod<'_, '_>, found: &mut Vec<Finding>) {
    if this.pod.is_task() {
        return;
    }
    let policies = this.input.iter().filter(|other| isolates(other, this));
    let policies: Vec<&Located<'_>> = policies.collect();
    if !policies.is_empty() {
        found.extend(blocked(this, &policies));
    }
    let Some(service) = this.ports.service else {
        return;
    };
    if policies.is_empty() {
        let why = format!(
            "no NetworkPolicy of this input covers it: if the service listens on more than 127.0.0.1, port {service} is reached past the sidecar"
        );
        found.push(this.finding(Level::Note, Rule::NoNetworkPolicy, why));
    }
    for policy in policies {
        found.extend(allowed(policy, this, service));
    }
}

/// Returns true for a policy that rejects what it does not allow to a pod.
fn isolates(policy: &Located<'_>, this: &ProtectedPod<'_, '_>) -> bool {
    let object = policy.object;
    let is_policy = object.kind() == "NetworkPolicy"
        && text(object.value(), "/apiVersion").starts_with("networking.k8s.io/");
    let types = object.value().pointer("/spec/policyTypes");
    let is_for_ingress = types.is_none() || list(types).any(|kind| kind == "Ingress");
    let selector = object.value().pointer("/spec/podSelector");
    is_policy
        && is_for_ingress
        && share_namespace(object, this.owner.object)
        && selector.is_none_or(|selector| services::meets(selector, Object::new(this.pod.value())))
}

/// Returns the finding of a policy that allows the service's port.
fn allowed(policy: &Located<'_>, this: &ProtectedPod<'_, '_>, service: u16) -> Option<Finding> {
    let of_pod = this.owner.object.described();
    let rules = || list(policy.object.value().pointer("/spec/ingress"));
    let names = |target: &Value| ports::resolved(&this.pod, target);
    if rules().any(|rule| names_port(rule, service, names)) {
        let why = format!("allows port {service} of {of_pod}, past the sidecar");
        return Some(policy.finding(Level::Error, Rule::PolicyPastSidecar, why));
    }
    rules().find(|rule| is_of_all_ports(rule))?;
    let why = format!("allows every port of {of_pod}, the service's {service} too");
    Some(policy.finding(Level::Warning, Rule::PolicyPastSidecar, why))
}

/// Returns the finding of a pod whose policies allow other ports than the sidecar's.
fn blocked(this: &ProtectedPod<'_, '_>, policies: &[&Located<'_>]) -> Option<Finding> {
    let own = |target: &Value| {
        let mut own = ports::of_container(this.sidecar);
        let named = own.find(|(name, _)| target == *name).map(|(_, port)| port);
        named.or_else(|| ports::resolved(&this.pod, target))
    };
    let port = this.ports.sidecar;
    let mut rules = policies
        .iter()
        .flat_map(|policy| list(policy.object.value().pointer("/spec/ingress")));
    if rules.any(|rule| is_of_all_ports(rule) || names_port(rule, port, own)) {
        return None;
    }
    let why = format!("its NetworkPolicies do not allow port {port}, which is the sidecar's");
    Some(this.finding(Level::Warning, Rule::PolicyBlocksSidecar, why))
}

fn is_of_all_ports(rule: &Value) -> bool {
    list(rule.get("ports")).next().is_none()
}

/// Returns true for a rule with a port, or a range, that holds this one.
fn names_port(rule: &Value, wanted: u16, resolved: impl Fn(&Value) -> Option<u16>) -> bool {
    list(rule.get("ports")).any(|port| {
        let is_tcp = matches!(text(port, "/protocol"), "" | "TCP");
        let Some(target) = port.get("port").filter(|target| !target.is_null()) else {
            return is_tcp;
        };
        let Some(first) = resolved(target) else {
            return false;
        };
        let last = port.get("endPort").and_then(Value::as_u64);
        is_tcp && (u64::from(first)..=last.unwrap_or(first.into())).contains(&wanted.into())
    })
}
