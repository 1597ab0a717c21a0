//! Monitors of a protected pod: what they scrape needs a token, unless it is on the pass list.

use wire::settings;

use crate::annotations::{OPEN_PORTS, PUBLIC_PATH};
use crate::object::{Object, list, name_of, share_namespace, text, variable};
use crate::ports::{self, Ports};
use crate::services;
use crate::settings::{APP_NAME, PUBLIC_PATH as PASS_LIST};

const METRICS: &str = "/metrics";

/// Returns a line for each monitor of a pod with a sidecar that gets no metrics from it.
pub(crate) fn unserved(input: &[Object<'_>], owner: Object<'_>, ports: Ports) -> Vec<String> {
    let Some(pod) = owner.pod() else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let mut line = |monitor: &str, port: Option<u16>, path: &str| {
        let path = if path.is_empty() { METRICS } else { path };
        if port == Some(ports.sidecar) && !passes(pod, path) {
            lines.push(format!(
                "{monitor} scrapes {path} through the sidecar, without a token: add it to the annotation {PUBLIC_PATH}, or give metrics a port of their own in {OPEN_PORTS}"
            ));
        } else if port.is_some() && port == ports.service {
            lines.push(format!(
                "{monitor} scrapes {path} past the sidecar, which works while no NetworkPolicy closes that port: send it to port {}, with {path} in the annotation {PUBLIC_PATH}",
                ports.sidecar
            ));
        }
    };
    if pod.annotation("prometheus.io/scrape") == Some("true") {
        let port = pod.annotation("prometheus.io/port");
        let port = port.map_or(ports.service, ports::number);
        let path = pod.annotation("prometheus.io/path");
        line("prometheus.io/scrape", port, path.unwrap_or_default());
    }
    for monitor in input.iter().filter(|each| share_namespace(**each, owner)) {
        let spec = |path: &str| monitor.value().pointer(&format!("/spec/{path}"));
        let is_meant =
            |object| spec("selector").is_some_and(|selector| services::meets(selector, object));
        if monitor.kind() == "PodMonitor" && is_meant(pod) {
            for endpoint in list(spec("podMetricsEndpoints")) {
                let port = endpoint.get("port").or(endpoint.get("portNumber"));
                let port = port.and_then(|port| ports::resolved(pod, port));
                line(&monitor.described(), port, text(endpoint, "/path"));
            }
        }
        if monitor.kind() != "ServiceMonitor" {
            continue;
        }
        let leading = input.iter();
        let leading =
            leading.filter(|service| services::selects(**service, owner) && is_meant(**service));
        for service in leading {
            for endpoint in list(spec("endpoints")) {
                let mut named = list(service.value().pointer("/spec/ports"))
                    .filter(|port| name_of(port) == text(endpoint, "/port"));
                let port = named.find_map(|port| ports::resolved(pod, port.get("targetPort")?));
                line(&monitor.described(), port, text(endpoint, "/path"));
            }
        }
    }
    lines
}

/// Returns true for a path that the sidecar of a pod asks no token for.
fn passes(pod: Object<'_>, path: &str) -> bool {
    let setting = |name| pod.sidecar().and_then(|sidecar| variable(sidecar, name));
    let list = setting(PASS_LIST).and_then(|list| settings::pass_list(&list).ok());
    let context = settings::context_path(&setting(APP_NAME).unwrap_or_default());
    let path = context
        .ok()
        .and_then(|context| context.strip_from(path).map(str::to_owned));
    list.zip(path)
        .is_some_and(|(list, path)| list.matches(&path))
}
