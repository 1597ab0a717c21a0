//! Probes of the service: the kubelet sends them to the sidecar's admin port, which forwards them.

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

use crate::object::{list, name_of, text};
use crate::ports::{self, Ports};

/// Kinds of probes, and the ends of their names.
pub(crate) const KINDS: [(&str, &str); 3] = [
    ("startupProbe", "startup"),
    ("readinessProbe", "readiness"),
    ("livenessProbe", "liveness"),
];

/// Sends the HTTP probes of the service's port to the admin port, and returns what the sidecar
/// forwards for them, by name. One with a `host` stays as it is.
pub(crate) fn redirect(spec: &mut Value, ports: Ports) -> Map<String, Value> {
    let mut all = Map::new();
    let Some(service) = ports.service else {
        return all;
    };
    let containers = spec.get_mut("containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        for (kind, end) in KINDS {
            let probe = container.get(kind);
            let Some(forwarded) = probe.and_then(|probe| forwarded(probe, container, service))
            else {
                continue;
            };
            let name = format!("{}-{end}", name_of(container));
            let path = format!("/probe/{name}");
            let http = container.pointer_mut(&format!("/{kind}/httpGet"));
            if let Some(http) = http.and_then(Value::as_object_mut) {
                http.insert("path".to_owned(), path.into());
                http.insert("port".to_owned(), ports.admin.into());
                if http.get("scheme").is_some_and(|scheme| scheme == "HTTPS") {
                    http.insert("scheme".to_owned(), "HTTP".into());
                }
            }
            all.insert(name, forwarded);
        }
    }
    all
}

/// Returns the setting for a probe of the service's port; `None` for another one, and for what the
/// sidecar would reject.
fn forwarded(probe: &Value, container: &Value, service: u16) -> Option<Value> {
    let http = probe.get("httpGet")?;
    let is_of_service = http.get("host").is_none() && port_of(http, container)? == service;
    let path = match text(http, "/path") {
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/{path}"),
    };
    path.parse::<PathAndQuery>()
        .ok()
        .filter(|_| is_of_service)?;
    let mut action = Map::from_iter([
        ("path".to_owned(), path.into()),
        ("port".to_owned(), service.into()),
    ]);
    if text(http, "/scheme") == "HTTPS" {
        action.insert("scheme".to_owned(), "HTTPS".into());
    }
    let headers: Option<Vec<Value>> = list(http.get("httpHeaders")).map(header).collect();
    let headers = headers?;
    if !headers.is_empty() {
        action.insert("httpHeaders".to_owned(), headers.into());
    }
    let mut forwarded = Map::from_iter([("httpGet".to_owned(), action.into())]);
    let timeout = probe.get("timeoutSeconds").and_then(Value::as_u64);
    if let Some(timeout) = timeout.filter(|timeout| *timeout > 0) {
        forwarded.insert("timeoutSeconds".to_owned(), timeout.into());
    }
    Some(forwarded.into())
}

fn header(header: &Value) -> Option<Value> {
    let (name, value) = (text(header, "/name"), text(header, "/value"));
    name.parse::<HeaderName>().ok()?;
    value.parse::<HeaderValue>().ok()?;
    Some(json!({"name": name, "value": value}))
}

/// Returns the port of an HTTP probe, whose name is one of its own container.
pub(crate) fn port_of(http: &Value, container: &Value) -> Option<u16> {
    match http.get("port")? {
        Value::String(name) => ports::number(name).or_else(|| {
            let mut ports = ports::of_container(container);
            ports.find(|(other, _)| other == name).map(|(_, port)| port)
        }),
        port => u16::try_from(port.as_u64()?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_probes_of_the_service_are_forwarded() {
        let container = json!({"ports": [{"name": "web", "containerPort": 9898}]});
        let at = |path: &str| json!({"path": path, "port": 9898});
        let header = |name: &str, value: &str| json!([{"name": name, "value": value}]);
        for (http, expected) in [
            (
                json!({"port": 9898, "path": "/healthz"}),
                Some(at("/healthz")),
            ),
            (
                json!({"port": "web", "path": "/a/b?c=1"}),
                Some(at("/a/b?c=1")),
            ),
            (json!({"port": "9898", "path": "a"}), Some(at("/a"))),
            (json!({"port": 9898, "path": "/"}), Some(at("/"))),
            (
                json!({"port": 9898, "path": "/", "scheme": "HTTP"}),
                Some(at("/")),
            ),
            (json!({"port": 9898}), Some(at("/"))),
            (
                json!({"port": 9898, "scheme": "HTTPS", "httpHeaders": header("A", "$(B)")}),
                Some(
                    json!({"path": "/", "port": 9898, "scheme": "HTTPS", "httpHeaders": header("A", "$(B)")}),
                ),
            ),
            (
                json!({"port": 9898, "httpHeaders": header("a b", "")}),
                None,
            ),
            (
                json!({"port": 9898, "httpHeaders": header("a", "\n")}),
                None,
            ),
            (json!({"port": 9898, "path": "/a b"}), None),
            (
                json!({"port": 9898, "path": "/a", "host": "127.0.0.1"}),
                None,
            ),
            (json!({"port": 9999, "path": "/a"}), None),
            (json!({"port": "other", "path": "/a"}), None),
        ] {
            let probe = json!({"httpGet": http, "timeoutSeconds": 7, "periodSeconds": 2});
            let expected = expected.map(|action| json!({"httpGet": action, "timeoutSeconds": 7}));
            assert_eq!(forwarded(&probe, &container, 9898), expected, "{http}");
        }
        for probe in [
            json!({"tcpSocket": {"port": 9898}}),
            json!({"exec": {}}),
            json!({}),
        ] {
            assert_eq!(forwarded(&probe, &container, 9898), None, "{probe}");
        }
    }
}
