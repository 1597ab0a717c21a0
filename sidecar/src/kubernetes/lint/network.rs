//! Ways of the network to a protected pod that are not its sidecar's: NetworkPolicies, ports of the
//! node.

use serde_json::Value;

use super::rules::variable;
use super::{Finding, Level, Placed, Rule};
use crate::kubernetes::object::{PodView, list, share_namespace, text};
use crate::kubernetes::ports;
use crate::kubernetes::settings::UPSTREAM;

/// Finds the ways to the service's own port.
pub(super) fn of_pod(
    each: &Placed<'_>,
    pod: &PodView<'_>,
    sidecar: &Value,
    placed: &[Placed<'_>],
    found: &mut Vec<Finding>,
) {
    let Some(service) = service_port(each, pod, sidecar, placed) else {
        return;
    };
    of_node(each, pod, service, found);
    let mut policies = placed
        .iter()
        .filter(|other| isolates(other, each, pod))
        .peekable();
    if policies.peek().is_none() && !pod.is_task() {
        let spec = format!("{}/spec", pod.path);
        let why = format!(
            "no NetworkPolicy of this input covers it: if the service listens on more than 127.0.0.1, port {service} is reached past the sidecar"
        );
        found.push(each.finding(Level::Note, Rule::NoNetworkPolicy, &spec, why));
    }
    for policy in policies {
        found.extend(allowed(policy, each, pod, service));
    }
}

/// Returns the port of the service; `None` where no network leads to it.
fn service_port(
    each: &Placed<'_>,
    pod: &PodView<'_>,
    sidecar: &Value,
    placed: &[Placed<'_>],
) -> Option<u16> {
    match variable(each, pod, sidecar, placed, UPSTREAM) {
        Some(upstream) => ports::of_upstream(upstream),
        None => ports::of_service(pod).ok(),
    }
}

fn of_node(each: &Placed<'_>, pod: &PodView<'_>, service: u16, found: &mut Vec<Finding>) {
    let spec = format!("{}/spec", pod.path);
    if pod.spec("hostNetwork") == Some(&Value::Bool(true)) {
        let pointer = format!("{spec}/hostNetwork");
        let why = "hostNetwork: the service is reached on the node's address";
        found.push(each.finding(Level::Error, Rule::HostNetwork, &pointer, why));
    }
    if let Some(port) = ports::of_node(pod, service) {
        let why = format!("hostPort {port}: the service is reached on the node's address");
        found.push(each.finding(Level::Error, Rule::HostNetwork, &spec, why));
    }
}

/// Returns true for a policy that rejects what it does not allow to a pod.
fn isolates(policy: &Placed<'_>, each: &Placed<'_>, pod: &PodView<'_>) -> bool {
    let object = policy.object;
    let is_policy = object.kind() == "NetworkPolicy"
        && text(object.value(), "/apiVersion").starts_with("networking.k8s.io/");
    let types = object.value().pointer("/spec/policyTypes");
    let is_for_ingress = types.is_none() || list(types).any(|kind| kind == "Ingress");
    let selector = object.value().pointer("/spec/podSelector");
    is_policy
        && is_for_ingress
        && share_namespace(object, each.object)
        && selector.is_none_or(|selector| selects(selector, pod))
}

/// Returns true for a label selector that the pod meets; an empty one selects all pods.
fn selects(selector: &Value, pod: &PodView<'_>) -> bool {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let mut labels = labels.into_iter().flatten();
    let mut expressions = list(selector.get("matchExpressions"));
    labels.all(|(name, value)| {
        value
            .as_str()
            .is_some_and(|value| pod.label(name) == Some(value))
    }) && expressions.all(|expression| meets(expression, pod))
}

fn meets(expression: &Value, pod: &PodView<'_>) -> bool {
    let label = pod.label(text(expression, "/key"));
    let is_listed = label.is_some_and(|label| {
        let mut values = list(expression.get("values"));
        values.any(|value| value == label)
    });
    match text(expression, "/operator") {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        _ => false,
    }
}

/// Returns the finding of a policy that allows the service's port.
fn allowed(
    policy: &Placed<'_>,
    each: &Placed<'_>,
    pod: &PodView<'_>,
    service: u16,
) -> Option<Finding> {
    let of_pod = each.object.described();
    let mut rules = list(policy.object.value().pointer("/spec/ingress")).enumerate();
    rules.find_map(|(number, rule)| {
        let mut ports = list(rule.get("ports")).peekable();
        let pointer = format!("/spec/ingress/{number}");
        if ports.peek().is_none() {
            let why = format!("allows every port of {of_pod}, the service's {service} too");
            return Some(policy.finding(Level::Warning, Rule::PolicyPastSidecar, &pointer, why));
        }
        ports.find(|port| covers(port, pod, service))?;
        let why = format!("allows port {service} of {of_pod}, past the sidecar");
        Some(policy.finding(Level::Error, Rule::PolicyPastSidecar, &pointer, why))
    })
}

/// Returns true for a port of a policy, or a range, that holds the service's.
fn covers(port: &Value, pod: &PodView<'_>, service: u16) -> bool {
    let is_tcp = matches!(text(port, "/protocol"), "" | "TCP");
    let Some(target) = port.get("port").filter(|target| !target.is_null()) else {
        return is_tcp;
    };
    let Some(first) = ports::resolved(pod, target) else {
        return false;
    };
    let last = port.get("endPort").and_then(Value::as_u64);
    is_tcp && (u64::from(first)..=last.unwrap_or(first.into())).contains(&service.into())
}
