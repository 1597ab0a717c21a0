//! Probes of the service: the kubelet sends them to the sidecar's admin port, which forwards them.

use serde_json::{Map, Value, json};
use wire::settings::probes;

use crate::object::{Object, PROBES, action, name_of, text};
use crate::ports::{self, ADMIN_PORT};

/// Returns what the sidecar forwards for the probes of the service's port, by name, and the changes
/// that send these to the admin port. One with a `host` stays as it is.
pub(crate) fn redirected(
    pod: Object<'_>,
    service: Option<u16>,
    warnings: &mut Vec<String>,
) -> (Map<String, Value>, Vec<(String, Value)>) {
    let (mut all, mut changes) = (Map::new(), Vec::new());
    for (number, container) in pod.containers().enumerate() {
        for (kind, end) in PROBES {
            let probe = &container[kind];
            let forwarded = service.and_then(|service| forwarded(probe, container, service));
            let Some((action, forwarded)) = forwarded else {
                continue;
            };
            let name = format!("{}-{end}", name_of(container));
            let alone = json!({ &name: forwarded });
            if let Err(why) = probes::parse(&alone.to_string()) {
                warnings.push(format!("{kind} stays as it is, past the sidecar: {why}"));
                continue;
            }
            let probe = format!("/spec/containers/{number}/{kind}");
            let path = format!("/probe/{name}");
            if action == "httpGet" {
                let mut change =
                    |member, value| changes.push((format!("{probe}/httpGet/{member}"), value));
                change("path", path.into());
                change("port", ADMIN_PORT.into());
                if text(&forwarded, "/httpGet/scheme") == "HTTPS" {
                    change("scheme", "HTTP".into());
                }
            } else {
                // With the member that the API server would add.
                let http = json!({"path": path, "port": ADMIN_PORT, "scheme": "HTTP"});
                changes.push((format!("{probe}/{action}"), Value::Null));
                changes.push((format!("{probe}/httpGet"), http));
            }
            all.insert(name, forwarded);
        }
    }
    (all, changes)
}

/// Returns the action of a probe of the service's port, and the setting that forwards it; `None` for
/// another probe.
fn forwarded(probe: &Value, container: &Value, service: u16) -> Option<(&'static str, Value)> {
    let (kind, action) = action(probe)?;
    if !action["host"].is_null() || port_of(action, container)? != service {
        return None;
    }
    let mut action = action.clone();
    let members = action.as_object_mut()?;
    members.retain(|_, value| !value.is_null());
    members.insert("port".to_owned(), service.into());
    if kind == "httpGet" {
        // What the kubelet adds.
        members.entry("scheme").or_insert("HTTP".into());
        let path = match text(probe, "/httpGet/path") {
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        };
        members.insert("path".to_owned(), path.into());
    }
    let mut forwarded = json!({ kind: action });
    let timeout = probe["timeoutSeconds"].as_u64();
    if let Some(timeout) = timeout.filter(|timeout| *timeout > 0) {
        forwarded["timeoutSeconds"] = timeout.into();
    }
    Some((kind, forwarded))
}

/// Returns the port of a probe, whose name is one of its own container.
pub(crate) fn port_of(action: &Value, container: &Value) -> Option<u16> {
    ports::resolved_in(ports::of_container(container), &action["port"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_of_the_service_are_forwarded() {
        let container = json!({"ports": [{"name": "web", "containerPort": 9898}]});
        let at = |path: &str| json!({"httpGet": {"path": path, "port": 9898, "scheme": "HTTP"}});
        let headers = json!([{"name": "A", "value": "$(B)"}]);
        for (probe, expected) in [
            (
                json!({"httpGet": {"port": 9898, "path": "/healthz"}}),
                Some(at("/healthz")),
            ),
            (
                json!({"httpGet": {"port": "web", "path": "/a/b?c=1"}}),
                Some(at("/a/b?c=1")),
            ),
            (
                json!({"httpGet": {"port": "9898", "path": "a"}}),
                Some(at("/a")),
            ),
            (
                json!({"httpGet": {"port": 9898, "scheme": "HTTP"}}),
                Some(at("/")),
            ),
            (
                json!({"httpGet": {"port": 9898, "host": null}}),
                Some(at("/")),
            ),
            (
                json!({"httpGet": {"port": 9898, "scheme": "HTTPS", "httpHeaders": headers}}),
                Some(json!({"httpGet": {
                    "path": "/", "port": 9898, "scheme": "HTTPS", "httpHeaders": headers,
                }})),
            ),
            (
                json!({"tcpSocket": {"port": "web"}}),
                Some(json!({"tcpSocket": {"port": 9898}})),
            ),
            (
                json!({"grpc": {"port": 9898, "service": "a"}}),
                Some(json!({"grpc": {"port": 9898, "service": "a"}})),
            ),
            (
                json!({"httpGet": {"port": 9898, "path": "/a", "host": "127.0.0.1"}}),
                None,
            ),
            (
                json!({"tcpSocket": {"port": 9898, "host": "127.0.0.1"}}),
                None,
            ),
            (json!({"httpGet": {"port": 9999, "path": "/a"}}), None),
            (json!({"grpc": {"port": 9999}}), None),
            (json!({"httpGet": {"port": "other", "path": "/a"}}), None),
            (json!({"exec": {}}), None),
            (json!({}), None),
        ] {
            let mut probe = probe;
            probe["timeoutSeconds"] = 7.into();
            let found = forwarded(&probe, &container, 9898).map(|(_, forwarded)| forwarded);
            let expected = expected.map(|mut action| {
                action["timeoutSeconds"] = 7.into();
                action
            });
            assert_eq!(found, expected, "{probe}");
        }
    }

    #[test]
    fn what_the_sidecar_would_reject_stays_with_a_warning() {
        for action in [
            json!({"httpGet": {"port": 9898, "path": "/a b"}}),
            json!({"httpGet": {"port": 9898, "httpHeaders": [{"name": "a b", "value": ""}]}}),
            json!({"httpGet": {"port": 9898, "httpHeaders": [{"name": "a", "value": "\n"}]}}),
            json!({"httpGet": {"port": 9898, "unknown": 1}}),
            json!({"grpc": {"port": 9898, "service": "a".repeat(128)}}),
        ] {
            let pod = json!({"spec": {"containers": [{"name": "web", "livenessProbe": action}]}});
            let mut warnings = Vec::new();
            let (all, changes) = redirected(Object(&pod), Some(9898), &mut warnings);
            assert!(all.is_empty() && changes.is_empty());
            assert_eq!(warnings.len(), 1, "{warnings:?}");
        }
    }
}
