//! Generated manifests: one workload and its Service, in the layouts of people and programs.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// A stream of two objects, and its layout.
#[derive(Debug, Clone)]
pub(super) struct Manifest {
    workload: Value,
    service: Value,
    layout: Layout,
}

#[derive(Debug, Clone, Copy)]
enum Layout {
    Json,
    Pretty,
    Block,
    /// With comments and empty lines.
    Commented,
    List,
}

impl Manifest {
    pub(super) fn text(&self) -> String {
        let objects = [&self.workload, &self.service];
        let render = |value: &Value| match self.layout {
            Layout::Json => value.to_string() + "\n",
            Layout::Pretty => serde_json::to_string_pretty(value).unwrap() + "\n",
            Layout::Block | Layout::List => block(value, 0),
            Layout::Commented => commented(&block(value, 0)),
        };
        match self.layout {
            Layout::List => block(
                &json!({"apiVersion": "v1", "kind": "List", "items": objects}),
                0,
            ),
            _ => objects
                .map(|value| format!("---\n{}", render(value)))
                .concat(),
        }
    }
}

/// Renders a value in blocks, lists deeper than their member.
fn block(value: &Value, indent: usize) -> String {
    let spaces = " ".repeat(indent);
    match value {
        Value::Object(members) if !members.is_empty() => members
            .iter()
            .map(|(name, value)| match value {
                Value::Object(inner) if !inner.is_empty() => {
                    format!("{spaces}{name}:\n{}", block(value, indent + 2))
                }
                Value::Array(inner) if !inner.is_empty() => {
                    format!("{spaces}{name}:\n{}", block(value, indent + 2))
                }
                Value::Null => format!("{spaces}{name}:\n"),
                value => format!("{spaces}{name}: {value}\n"),
            })
            .collect(),
        Value::Array(items) => items
            .iter()
            .map(|item| format!("{spaces}- {}", block(item, indent + 2).trim_start()))
            .collect(),
        scalar => format!("{spaces}{scalar}\n"),
    }
}

fn commented(text: &str) -> String {
    let line = |(number, line): (usize, &str)| {
        let indent = " ".repeat(line.len() - line.trim_start().len());
        match number % 5 {
            1 => format!("{indent}# {number}: a comment\n{line}\n"),
            2 => format!("{line}  # behind\n"),
            3 => format!("\n{line}\n"),
            _ => format!("{line}\n"),
        }
    };
    text.lines().enumerate().map(line).collect()
}

pub(super) fn manifest() -> impl Strategy<Value = Manifest> {
    let layout = prop_oneof![
        Just(Layout::Json),
        Just(Layout::Pretty),
        Just(Layout::Block),
        Just(Layout::Commented),
        Just(Layout::List),
    ];
    let target = select(vec![json!("http"), json!(8080), json!(3000), Value::Null]);
    (workload(), target, option::of(Just("shop")), layout).prop_map(
        |(workload, target, namespace, layout)| {
            let mut port = json!({"name": "web", "port": 3000});
            if !target.is_null() {
                port["targetPort"] = target;
            }
            let mut service = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "spec": {"selector": {"app": "web"}, "ports": [port]},
            });
            let mut workload = workload;
            if let Some(namespace) = namespace {
                service["metadata"]["namespace"] = namespace.into();
                workload["metadata"]["namespace"] = namespace.into();
            }
            Manifest {
                workload,
                service,
                layout,
            }
        },
    )
}

fn workload() -> impl Strategy<Value = Value> {
    let kinds = "Deployment StatefulSet DaemonSet ReplicaSet Job CronJob Pod";
    let kinds = select(kinds.split(' ').collect::<Vec<_>>());
    let (on_pods, above) = (any::<bool>(), any::<bool>());
    let parts = (kinds, pod_spec(), annotations(), on_pods, above);
    parts.prop_map(|(kind, spec, annotations, on_pods, above)| {
        let mut labels = json!({"app": "web"});
        let mut metadata = json!({"name": "web"});
        if on_pods || kind == "Pod" {
            labels["postern/sidecar"] = "true".into();
        } else {
            metadata["labels"] = json!({"postern/sidecar": "true"});
        }
        let mut of_pods = json!({"labels": labels});
        match annotations {
            Some(annotations) if above && kind != "Pod" => metadata["annotations"] = annotations,
            Some(annotations) => of_pods["annotations"] = annotations,
            None => {}
        }
        let template = json!({"metadata": of_pods, "spec": spec});
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
        match kind {
            "Pod" => {
                object["metadata"] = template["metadata"].clone();
                object["metadata"]["name"] = "web".into();
                object["spec"] = spec;
            }
            "CronJob" => object["spec"] = json!({"jobTemplate": {"spec": {"template": template}}}),
            _ => object["spec"] = json!({"replicas": 1, "template": template}),
        }
        object
    })
}

fn annotations() -> impl Strategy<Value = Option<Value>> {
    let one = prop_oneof![
        Just(("postern/port", "http")),
        Just(("postern/public-path", "/a/**,/b")),
        Just(("postern/run-as-user", "")),
        Just(("postern/run-as-user", "1000")),
        Just(("postern/app-name", "web")),
        Just(("postern/app-id", "shop")),
        Just(("postern/config-map", "settings")),
        Just(("postern/config-file", "tables")),
        Just(("postern/secret", "own")),
        Just(("example.com/other", "a: b # c")),
    ];
    option::of(vec(one, 0..4).prop_map(|pairs| {
        let pairs = pairs.into_iter();
        Value::Object(
            pairs
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect(),
        )
    }))
}

fn pod_spec() -> impl Strategy<Value = Value> {
    let optional = (
        option::of(select(vec![
            json!([]),
            json!([{"name": "init", "image": "i:1"}]),
        ])),
        option::of(select(vec![
            Value::Null,
            json!([{"name": "data", "emptyDir": {}}]),
        ])),
        option::of(select(vec![json!(10), json!(30), json!(300)])),
        option::of(select(vec!["Always", "Never", "OnFailure"])),
        option::of(Just(json!({"fsGroup": 999}))),
        option::of(select(vec![
            Value::Null,
            json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "2Gi"}}),
            json!({"limits": {"cpu": "0.5"}}),
        ])),
    );
    (vec(container(), 1..4), optional).prop_map(|(containers, optional)| {
        let (init, volumes, grace, policy, security, resources) = optional;
        let numbered = containers.into_iter().enumerate();
        let containers: Vec<Value> = numbered
            .map(|(number, mut container)| {
                container["name"] = format!("c{number}").into();
                if number > 0 {
                    container.as_object_mut().unwrap().remove("ports");
                }
                container
            })
            .collect();
        let mut spec = Map::from_iter([("containers".to_owned(), containers.into())]);
        for (name, value) in [
            ("initContainers", init),
            ("volumes", volumes),
            ("terminationGracePeriodSeconds", grace),
            ("restartPolicy", policy.map(Value::from)),
            ("securityContext", security),
            ("resources", resources),
        ] {
            spec.extend(value.map(|value| (name.to_owned(), value)));
        }
        Value::Object(spec)
    })
}

fn container() -> impl Strategy<Value = Value> {
    let port = select(vec![8080, 3000, 18081, 18080]);
    let path = select(vec!["/healthz", "/", "/web/up", "/a?b=c"]);
    let more = prop_oneof![
        3 => Just(json!({})),
        1 => Just(json!({"scheme": "HTTPS", "path": null})),
        1 => Just(json!({"scheme": "HTTP", "path": "up"})),
        1 => Just(json!({"path": "/$(A)", "httpHeaders": [{"name": "Host", "value": "$$(B)"}]})),
    ];
    let named = select(vec![json!("http"), json!(8080), json!(3000)]);
    let probe = (path, named, more).prop_map(|(path, port, more)| {
        let mut http = json!({"path": path, "port": port});
        for (name, value) in more.as_object().into_iter().flatten() {
            http[name] = value.clone();
        }
        json!({"httpGet": http})
    });
    let lifecycle = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!({"postStart": {"exec": {"command": ["a"]}}})),
        Just(json!({"preStop": {"exec": {"command": ["a"]}}})),
    ];
    let (ready, live) = (option::of(probe.clone()), option::of(probe));
    let parts = (option::of(port), ready, live, option::of(lifecycle));
    parts.prop_map(|(port, ready, live, lifecycle)| {
        let mut container = json!({"image": "registry.example.com/web:1.0.0", "name": "c"});
        if let Some(port) = port {
            container["ports"] = json!([{"name": "http", "containerPort": port}]);
        }
        for (name, value) in [
            ("readinessProbe", ready),
            ("livenessProbe", live),
            ("lifecycle", lifecycle),
        ] {
            if let Some(value) = value {
                container[name] = value;
            }
        }
        container
    })
}
