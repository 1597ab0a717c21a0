//! Probes of the service: the kubelet sends them to the sidecar's admin port, which forwards them.

use postern_contract::settings::probes;
use postern_http::header_alias::cgi_equal;
use serde_json::{Map, Value, json};

use crate::manifest::object::{Object, PROBES, action, name_of, text};
use crate::network::ports::{self, ADMIN_PORT};

/// The probes of one pod that the sidecar forwards.
#[derive(Debug, Default)]
pub(crate) struct ForwardedProbes {
    /// The sidecar's setting, by the names of the probes.
    pub(crate) settings: Map<String, Value>,
    /// The changes of the pod that send the probes to the admin port.
    pub(crate) changes: Vec<(String, Value)>,
}

/// Sends the probes of the service's port to the admin port. A probe with a `host` stays as it is, and so
/// does a probe with a header that names the user (one of `user_headers`).
pub(crate) fn forward(
    pod: Object<'_>,
    service: u16,
    user_headers: &[&str],
    warnings: &mut Vec<String>,
) -> ForwardedProbes {
    let mut probes = ForwardedProbes::default();
    for (path, container) in pod.containers_with_pointers() {
        for (kind, end) in PROBES {
            let Some((action, forwarded)) = forwarded(&container[kind], container, service) else {
                continue;
            };
            let name = format!("{}-{end}", name_of(container));
            if let Err(why) = check(&name, &forwarded, user_headers) {
                warnings.push(format!("{kind} stays as it is, past the sidecar: {why}"));
                continue;
            }
            let probe = format!("{path}/{kind}");
            // The admin port forwards the probe that this path names.
            let path = format!("/probe/{name}");
            if action == "httpGet" {
                let mut change = |member, value| {
                    let path = format!("{probe}/httpGet/{member}");
                    probes.changes.push((path, value));
                };
                change("path", path.into());
                change("port", ADMIN_PORT.into());
                // The admin port speaks plain HTTP; the sidecar itself speaks HTTPS to the service.
                if text(&forwarded, "/httpGet/scheme") == "HTTPS" {
                    change("scheme", "HTTP".into());
                }
            } else {
                // With the member that the API server would add.
                let http = json!({"path": path, "port": ADMIN_PORT, "scheme": "HTTP"});
                probes.changes.extend([
                    (format!("{probe}/{action}"), Value::Null),
                    (format!("{probe}/httpGet"), http),
                ]);
            }
            probes.settings.insert(name, forwarded);
        }
    }
    probes
}

/// Checks a probe with the sidecar's parser: a setting that it rejects would keep the pod from starting.
fn check(name: &str, forwarded: &Value, user_headers: &[&str]) -> Result<(), String> {
    let probes = probes::parse(&json!({ name: forwarded }).to_string())?;
    probes::reject_user_headers(&probes, |name| {
        user_headers.iter().any(|user| cgi_equal(name, user))
    })
}

/// Returns the name of the action of a probe of the service's port, and the setting that forwards it;
/// `None` for another probe.
fn forwarded(probe: &Value, container: &Value, service: u16) -> Option<(&'static str, Value)> {
    let (name, action) = action(probe)?;
    // A probe with a host goes to another machine, or around the pod's address.
    if !action["host"].is_null() || port_of(action, container)? != service {
        return None;
    }
    let mut action = action.clone();
    let members = action.as_object_mut()?;
    members.retain(|_, value| !value.is_null());
    members.insert("port".to_owned(), service.into());
    if name == "httpGet" {
        // The kubelet adds the scheme where the manifest has none.
        members.entry("scheme").or_insert("HTTP".into());
        let path = match text(probe, "/httpGet/path") {
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        };
        members.insert("path".to_owned(), path.into());
    }
    let mut forwarded = json!({ name: action });
    match probe["timeoutSeconds"].as_u64() {
        // With 0 the kubelet's default counts, as without the member.
        None | Some(0) => {}
        Some(seconds) => forwarded["timeoutSeconds"] = seconds.into(),
    }
    Some((name, forwarded))
}

/// Returns the port of a probe, whose name is one of its own container.
pub(crate) fn port_of(action: &Value, container: &Value) -> Option<u16> {
    ports::target_among(ports::container_ports(container), &action["port"])
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
            let probes = forward(Object(&pod), 9898, &names, &mut warnings);
            assert!(probes.settings.is_empty() && probes.changes.is_empty());
            assert_eq!(warnings.len(), 1, "{warnings:?}");
        }
    }
}
