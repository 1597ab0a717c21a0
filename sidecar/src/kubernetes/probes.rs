//! Probes of the service: they go through the sidecar, on paths that it passes without a token.

use serde_json::Value;

use super::object::{PodView, text};
use super::patch::Operation;
use super::ports::{self, Ports};

const KINDS: [&str; 3] = ["startupProbe", "readinessProbe", "livenessProbe"];

/// The new port of probes, and the paths that they need.
#[derive(Debug, Default)]
pub(super) struct Rewritten {
    pub(super) operations: Vec<Operation>,
    /// Paths as the pass list has them, without the context path.
    pub(super) paths: Vec<String>,
}

/// Sends the HTTP probes of the service's port through the sidecar. A probe stays as it is where its
/// path would have to be passed as a pattern, or is the service's first page.
pub(super) fn rewritten(pod: &PodView<'_>, ports: Ports, context_path: Option<&str>) -> Rewritten {
    let mut found = Rewritten::default();
    for (number, container) in pod.containers().enumerate() {
        for kind in KINDS {
            let Some(http) = container.get(kind).and_then(|probe| probe.get("httpGet")) else {
                continue;
            };
            let Some(path) = passable(http, container, ports.service, context_path) else {
                continue;
            };
            let pointer = &pod.path;
            found.operations.push(Operation::replace(
                format!("{pointer}/spec/containers/{number}/{kind}/httpGet/port"),
                ports.sidecar.into(),
            ));
            if !found.paths.contains(&path) {
                found.paths.push(path);
            }
        }
    }
    found
}

/// Returns the path that a probe of the service's port needs.
fn passable(
    http: &Value,
    container: &Value,
    service: u16,
    context_path: Option<&str>,
) -> Option<String> {
    let is_plain = matches!(text(http, "/scheme"), "" | "HTTP") && http.get("host").is_none();
    (is_plain && port_of(http, container)? == service).then_some(())?;
    let path = path_of(http);
    let below = match context_path {
        None => path,
        Some(name) => path.strip_prefix('/')?.strip_prefix(name)?,
    };
    is_literal(below).then(|| below.to_owned())
}

/// Returns the path of an HTTP probe without its query.
pub(super) fn path_of(http: &Value) -> &str {
    let path = text(http, "/path");
    path.split_once('?').map_or(path, |(path, _)| path)
}

/// Returns the port of an HTTP probe, whose name is one of its own container.
pub(super) fn port_of(http: &Value, container: &Value) -> Option<u16> {
    match http.get("port")? {
        Value::String(name) => ports::number(name).or_else(|| {
            let mut ports = ports::of_container(container);
            ports.find(|(other, _)| other == name).map(|(_, port)| port)
        }),
        port => u16::try_from(port.as_u64()?).ok(),
    }
}

/// Returns true for a path that is a pattern for itself alone, and not the first page.
fn is_literal(path: &str) -> bool {
    let segments = path.strip_prefix('/').unwrap_or_default();
    !segments.is_empty()
        && segments
            .trim_end_matches('/')
            .split('/')
            .all(|segment| !matches!(segment, "" | "." | ".."))
        && !segments.ends_with("//")
        && segments
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_literal_paths_of_the_service_are_passed() {
        let container = json!({"ports": [{"name": "web", "containerPort": 9898}]});
        for (http, context_path, path) in [
            (
                json!({"port": 9898, "path": "/healthz"}),
                None,
                Some("/healthz"),
            ),
            (
                json!({"port": "web", "path": "/a/b?full=1"}),
                None,
                Some("/a/b"),
            ),
            (json!({"port": "9898", "path": "/a/"}), None, Some("/a/")),
            (
                json!({"port": 9898, "path": "/shop/up"}),
                Some("shop"),
                Some("/up"),
            ),
            (json!({"port": 9898, "path": "/up"}), Some("shop"), None),
            (
                json!({"port": 9898, "path": "/shopping"}),
                Some("shop"),
                None,
            ),
            (json!({"port": 9898, "path": "/"}), None, None),
            (json!({"port": 9898}), None, None),
            (json!({"port": 9898, "path": "//a"}), None, None),
            (json!({"port": 9898, "path": "/a/../b"}), None, None),
            (json!({"port": 9898, "path": "/a/**"}), None, None),
            (json!({"port": 9898, "path": "/a,/b"}), None, None),
            (json!({"port": 9898, "path": "/{id}"}), None, None),
            (
                json!({"port": 9898, "path": "/a", "scheme": "HTTPS"}),
                None,
                None,
            ),
            (
                json!({"port": 9898, "path": "/a", "host": "127.0.0.1"}),
                None,
                None,
            ),
            (json!({"port": 9999, "path": "/a"}), None, None),
            (json!({"port": "other", "path": "/a"}), None, None),
        ] {
            let found = passable(&http, &container, 9898, context_path);
            assert_eq!(found.as_deref(), path, "{http}");
        }
    }
}
