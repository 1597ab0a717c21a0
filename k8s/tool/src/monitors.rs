//! Monitors of a protected pod: what they scrape needs a token, unless it is on the pass list.

use wire::settings;

use crate::annotations::{OPEN_PORTS, PUBLIC_PATH};
use crate::object::{Object, list, objects, share_namespace, text, variable};
use crate::ports::{self, Ports, SIDECAR_PORT};
use crate::services;
use crate::settings::{APP_NAME, PUBLIC_PATH as PASS_LIST};
use crate::yaml::Document;

const METRICS: &str = "/metrics";

/// Returns a line for each monitor of a pod with a sidecar that gets no metrics from it.
pub(crate) fn unserved(
    input: &[Document],
    owner: Object<'_>,
    pod: Object<'_>,
    ports: Ports,
) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |monitor: &str, port: Option<u16>, path: &str| {
        let path = if path.is_empty() { METRICS } else { path };
        if port == Some(SIDECAR_PORT) && !passes(pod, path) {
            lines.push(format!(
                "{monitor} scrapes {path} through the sidecar, without a token: add it to the annotation {PUBLIC_PATH}, or give metrics a port of their own in {OPEN_PORTS}"
            ));
        } else if port.is_some() && port == ports.service {
            lines.push(format!(
                "{monitor} scrapes {path} past the sidecar, which works while no NetworkPolicy closes that port: send it to port {SIDECAR_PORT}, with {path} in the annotation {PUBLIC_PATH}"
            ));
        }
    };
    if pod.annotation("prometheus.io/scrape") == Some("true") {
        let port = pod.annotation("prometheus.io/port");
        let port = port.map_or(ports.service, ports::number);
        let path = pod.annotation("prometheus.io/path");
        line("prometheus.io/scrape", port, path.unwrap_or_default());
    }
    for monitor in objects(input).filter(|each| share_namespace(*each, owner)) {
        let is_meant = |object| services::meets(monitor.spec("selector"), object);
        let (endpoints, ports) = match monitor.kind() {
            "PodMonitor" if is_meant(pod) => ("podMetricsEndpoints", None),
            "ServiceMonitor" => {
                let leading = objects(input).filter(|each| services::selects(*each, owner));
                let ports = leading.filter(|each| is_meant(*each));
                let ports = ports.flat_map(|each| list(each.spec("ports")));
                ("endpoints", Some(ports.collect::<Vec<_>>()))
            }
            _ => continue,
        };
        for endpoint in list(monitor.spec(endpoints)) {
            let named = endpoint.get("port").or(endpoint.get("portNumber"));
            let target = match &ports {
                None => named,
                Some(ports) => {
                    let port = ports.iter().find(|port| port.get("name") == named);
                    port.map(|port| &port["targetPort"])
                }
            };
            let port = target.and_then(|target| ports::resolved(pod, target));
            line(&monitor.described(), port, text(endpoint, "/path"));
        }
    }
    lines
}

/// Returns true for a path that the sidecar of a pod asks no token for.
fn passes(pod: Object<'_>, path: &str) -> bool {
    let setting = |name| variable(pod.sidecar()?, name);
    let list = setting(PASS_LIST).and_then(|list| settings::pass_list(&list).ok());
    let context = settings::context_path(&setting(APP_NAME).unwrap_or_default()).ok();
    list.zip(context).is_some_and(|(list, context)| {
        context
            .strip_from(path)
            .is_some_and(|path| list.matches(path))
    })
}
