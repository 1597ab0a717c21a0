//! Probes of the service: the kubelet sends them to the sidecar's admin port, which forwards them.

use postern_contract::settings::probes;
use postern_http::header_alias::cgi_equal;
use serde_json::{Map, Value, json};

use crate::manifest::object::{Object, PROBES, action, name_of, text};
use crate::network::ports::{self, ADMIN_PORT};

/// Returns the settings that forward the probes of the service's port, by name, and the changes that send
/// these probes to the admin port. A probe with a `host` stays as it is, and so does a probe with a
/// header that names the user (one of `user_headers`).
pub(crate) fn redirected(
    pod: Object<'_>,
    service: Option<u16>,
    user_headers: &[&str],
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
            // Check with the sidecar's parser: a setting that it rejects would keep the pod from starting.
            let alone = json!({ &name: forwarded });
            let is_about_user = |name: &str| user_headers.iter().any(|user| cgi_equal(name, user));
            let checked = probes::parse(&alone.to_string())
                .and_then(|all| probes::reject_user_headers(&all, is_about_user));
            if let Err(why) = checked {
                warnings.push(format!("{kind} stays as it is, past the sidecar: {why}"));
                continue;
            }
            let probe = format!("/spec/containers/{number}/{kind}");
            // The admin port forwards the probe that this path names.
            let path = format!("/probe/{name}");
            if action == "httpGet" {
                let mut change =
                    |member, value| changes.push((format!("{probe}/httpGet/{member}"), value));
                change("path", path.into());
                change("port", ADMIN_PORT.into());
                // The admin port speaks plain HTTP; the sidecar itself speaks HTTPS to the service.
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
    // A probe with a host goes to another machine, or around the pod's address.
    if !action["host"].is_null() || port_of(action, container)? != service {
        return None;
    }
    let mut action = action.clone();
    let members = action.as_object_mut()?;
    members.retain(|_, value| !value.is_null());
    members.insert("port".to_owned(), service.into());
    if kind == "httpGet" {
        // The kubelet adds the scheme where the manifest has none.
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
    ports::resolved_in(ports::container_ports(container), &action["port"])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn probes_of_the_service_are_forwarded() {
        let container = json!({"ports": [{"name": "web", "containerPort": 9898}]});
        for row in PROBES.trim().lines() {
            let (probe, expected) = row.split_once(" => ").unwrap();
            let [probe, expected] = [probe, expected].map(|text| {
                let mut probe: Value = serde_json::from_str(text).unwrap();
                if !probe.is_null() {
                    probe["timeoutSeconds"] = 7.into();
                }
                probe
            });
            let found = forwarded(&probe, &container, 9898).map(|(_, forwarded)| forwarded);
            assert_eq!(found.unwrap_or_default(), expected, "{probe}");
        }
    }

    /// Rows: a probe, and the one that the sidecar forwards.
    const PROBES: &str = r#"
{"httpGet": {"port": 9898, "path": "/healthz"}} => {"httpGet": {"path": "/healthz", "port": 9898, "scheme": "HTTP"}}
{"httpGet": {"port": "web", "path": "/a/b?c=1"}} => {"httpGet": {"path": "/a/b?c=1", "port": 9898, "scheme": "HTTP"}}
{"httpGet": {"port": "9898", "path": "a"}} => {"httpGet": {"path": "/a", "port": 9898, "scheme": "HTTP"}}
{"httpGet": {"port": 9898, "scheme": "HTTP"}} => {"httpGet": {"path": "/", "port": 9898, "scheme": "HTTP"}}
{"httpGet": {"port": 9898, "host": null}} => {"httpGet": {"path": "/", "port": 9898, "scheme": "HTTP"}}
{"httpGet": {"port": 9898, "scheme": "HTTPS", "httpHeaders": [{"name": "A", "value": "$(B)"}]}} => {"httpGet": {"path": "/", "port": 9898, "scheme": "HTTPS", "httpHeaders": [{"name": "A", "value": "$(B)"}]}}
{"tcpSocket": {"port": "web"}} => {"tcpSocket": {"port": 9898}}
{"grpc": {"port": 9898, "service": "a"}} => {"grpc": {"port": 9898, "service": "a"}}
{"httpGet": {"port": 9898, "path": "/a", "host": "127.0.0.1"}} => null
{"tcpSocket": {"port": 9898, "host": "127.0.0.1"}} => null
{"httpGet": {"port": 9999, "path": "/a"}} => null
{"grpc": {"port": 9999}} => null
{"httpGet": {"port": "other", "path": "/a"}} => null
{"exec": {}} => null
{} => null"#;

    #[test]
    fn what_the_sidecar_would_reject_stays_with_a_warning() {
        let with_header = |name: &str, value: &str| {
            let header = json!({"name": name, "value": value});
            json!({"httpGet": {"port": 9898, "httpHeaders": [{"name": "a", "value": ""}, header]}})
        };
        for action in [
            json!({"httpGet": {"port": 9898, "path": "/a b"}}),
            json!({"httpGet": {"port": 9898, "unknown": 1}}),
            json!({"grpc": {"port": 9898, "service": "a".repeat(128)}}),
            with_header("a b", ""),
            with_header("a", "\n"),
            with_header("X-Current-User", "{}"),
            with_header("x_current.USER", "{}"),
            with_header("X-Uid", "1"),
        ] {
            let pod = json!({"spec": {"containers": [{"name": "web", "livenessProbe": action}]}});
            let mut warnings = Vec::new();
            let names = ["X-Uid", "X-Current-User"];
            let (all, changes) = redirected(Object(&pod), Some(9898), &names, &mut warnings);
            assert!(all.is_empty() && changes.is_empty());
            assert_eq!(warnings.len(), 1, "{warnings:?}");
        }
    }
}
