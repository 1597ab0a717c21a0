//! Reviews of the objects of a manifest, one after the other, as an API server sends them.

mod workloads;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Settings, inject, pruned, settings, values};
use crate::admission::review;
use crate::cli::SidecarsArgs;
use crate::manifest::names::{ALL, ORIGINAL};
use crate::manifest::object::Object;

/// Returns what the webhook makes of an update; `None` where it is rejected.
fn updated(before: &Value, object: &Value) -> Option<Value> {
    let mut body = request(object);
    body["request"]["operation"] = "UPDATE".into();
    body["request"]["oldObject"] = before.clone();
    patched(&body, object)
}

fn request(object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "705ab4f5", "operation": "CREATE", "object": object},
    })
}

/// Returns the object as it is stored; `None` where it is rejected.
fn stored(object: &Value) -> Option<Value> {
    patched(&request(object), object)
}

fn patched(body: &Value, object: &Value) -> Option<Value> {
    let (_, reviewed) = review(body.to_string().as_bytes(), settings()).unwrap();
    let response = &reviewed["response"];
    assert_eq!(response["uid"], "705ab4f5");
    if response["allowed"] != json!(true) {
        return None;
    }
    let mut stored = object.clone();
    let Some(patch) = response["patch"].as_str() else {
        return Some(stored);
    };
    let patch: Value = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
    for operation in patch.as_array().unwrap() {
        assert_eq!(operation["op"], "add");
        let member = operation["path"].as_str().unwrap().trim_start_matches('/');
        stored[member] = operation["value"].clone();
    }
    Some(stored)
}

/// Asserts that the pods which the webhook makes of the workloads are those of `inject`.
pub(super) fn same_pods(text: &str) {
    let before = values(text);
    let Ok(injected) = inject(text, settings()) else {
        return;
    };
    let after = values(&injected);
    let pairs = before.iter().map(Object);
    for (before, after) in pairs.zip(after.iter().map(Object)) {
        if before.pod().is_none() || !before.wants_sidecar() {
            continue;
        }
        let expected = without_records(pod_of(after.0));
        let workload = stored(before.0).unwrap();
        let pod = stored(&pod_of(&workload)).unwrap();
        assert_eq!(without_records(pod), expected, "{text}");
    }
}

/// Returns a pod without the annotations that one way writes and another has no use for.
fn without_records(mut pod: Value) -> Value {
    for name in ["postern/port", "postern/original"] {
        let annotations = pod.pointer_mut("/metadata/annotations");
        annotations.and_then(|all| all.as_object_mut()?.remove(name));
    }
    pruned(pod)
}

/// Asserts that a second review of an object changes nothing.
pub(super) fn is_whole(object: &Value) {
    if let Some(reviewed) = stored(object) {
        assert_eq!(stored(&reviewed), Some(reviewed), "{object}");
    }
}

/// Returns the pod that a controller makes of a workload.
fn pod_of(workload: &Value) -> Value {
    let template = Object(workload).pod().unwrap().0.clone();
    let mut pod = template;
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod
}

fn pod(annotations: &Value) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"name": "a", "labels": {"postern/sidecar": "true", "app": "a"}, "annotations": annotations},
        "spec": {"containers": [{"name": "a", "image": "a:1", "ports": [{"containerPort": 3000}]}]},
    })
}

#[test]
fn requests_without_a_new_pod_change_nothing() {
    let pod = pod(&json!({}));
    let labels = &pod["metadata"]["labels"];
    for change in [
        json!({"operation": "UPDATE"}),
        json!({"operation": "UPDATE", "subResource": "ephemeralcontainers"}),
        json!({"operation": "CREATE", "subResource": "binding"}),
        json!({"operation": "DELETE", "object": null}),
        json!({"operation": "CONNECT"}),
        json!({"object": {"kind": "ConfigMap", "metadata": {"labels": labels}}}),
        json!({"object": {"kind": "Pod", "metadata": {}, "spec": {"containers": []}}}),
    ] {
        let mut body = request(&pod);
        for (name, value) in change.as_object().unwrap() {
            body["request"][name] = value.clone();
        }
        let (_, reviewed) = review(body.to_string().as_bytes(), settings()).unwrap();
        let expected = json!({"uid": "705ab4f5", "allowed": true, "warnings": []});
        assert_eq!(reviewed["response"], expected, "{change}");
    }
}

#[test]
fn a_labelled_pod_without_containers_is_rejected() {
    for spec in [
        Value::Null,
        json!({}),
        json!({"containers": []}),
        json!({"containers": {}}),
    ] {
        let mut pod = pod(&json!({"postern/port": "3000"}));
        pod["spec"] = spec;
        assert_eq!(stored(&pod), None, "{pod}");
    }
}

#[test]
fn bodies_that_are_no_reviews_are_errors() {
    for body in [
        &b""[..],
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
        br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}"#,
        br#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"a"}}"#,
        br#"{"apiVersion":"v1","kind":"Pod","request":{"uid":"a"}}"#,
    ] {
        assert!(review(body, settings()).is_err(), "{}", body.escape_ascii());
    }
}

#[test]
fn services_are_moved_where_one_port_is_certain() {
    let one = |target: Value| json!([{"port": 80, "targetPort": target}]);
    let two = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let first = |target: u16, second: Value| json!([{"name": "a", "port": 80, "targetPort": target}, second]);
    let second = json!({"name": "b", "port": 81});
    let metrics = json!({"name": "m", "port": 81, "targetPort": 18081});
    let udp = json!([{"port": 80, "targetPort": 3000, "protocol": "UDP"}]);
    let open = |ports: &str| json!({"postern/open-ports": ports});
    let both = json!({"postern/port": "80", "postern/open-ports": "b"});
    let of_sidecar = json!({"postern/sidecar-port": "8080"});
    let (moved, none) = (Some(18080), json!({}));
    for (annotations, ports, moved) in [
        (&none, one(3000.into()), moved),
        (&none, one(8080.into()), moved),
        (&none, one("http".into()), moved),
        (&none, one(18080.into()), moved),
        (&none, json!([{"port": 80}]), moved),
        // Neither earlier annotations nor new mistakes lead anywhere else.
        (&of_sidecar, one(8080.into()), moved),
        (&json!({"postern/port": "18080"}), one(8080.into()), moved),
        (&open("80"), one(3000.into()), Some(3000)),
        (&none, udp, None),
        (&none, two.clone(), None),
        (&json!({"postern/port": "80"}), two, None),
        (&both, first(80, second.clone()), moved),
        (&open("b, 7"), first(3000, second), moved),
        (&none, first(3000, metrics), moved),
    ] {
        let service = json!({
            "kind": "Service",
            "metadata": {"labels": {"postern/sidecar": "true"}, "annotations": annotations},
            "spec": {"selector": {"app": "a"}, "ports": ports},
        });
        let stored_once = stored(&service);
        let target = |service: &Value| service["spec"]["ports"][0]["targetPort"].clone();
        let found = stored_once.as_ref().map(target);
        assert_eq!(found, moved.map(Value::from), "{service}");
        is_whole(&service);
    }
}

fn injected(object: &Value) -> Value {
    values(&inject(&object.to_string(), settings()).unwrap()).remove(0)
}

#[test]
fn a_service_goes_back_with_its_label() {
    for target in [json!("web"), json!(3000), Value::Null] {
        let mut service = json!({
            "kind": "Service", "metadata": {"name": "web", "labels": {"postern/sidecar": "true"}},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": target}]},
        });
        let mut moved = stored(&service).unwrap();
        assert_eq!(moved["spec"]["ports"][0]["targetPort"], 18080);
        for labels in [json!({}), json!({"postern/sidecar": "false"})] {
            moved["metadata"]["labels"] = labels.clone();
            service["metadata"]["labels"] = labels;
            let back = updated(&moved, &moved).map(pruned);
            assert_eq!(back, Some(pruned(service.clone())));
        }
    }
}

/// Returns the patch of a pod with these annotations, as a text.
fn patch_of(annotations: &Value, set: &[&str]) -> String {
    let args = SidecarsArgs {
        set: set.iter().map(|pair| (*pair).to_owned()).collect(),
        ..SidecarsArgs::default()
    };
    let body = request(&pod(annotations)).to_string();
    let (_, reviewed) = review(body.as_bytes(), &Settings::new(&args).unwrap()).unwrap();
    let patch = reviewed["response"]["patch"].as_str().unwrap();
    String::from_utf8(STANDARD.decode(patch).unwrap()).unwrap()
}

#[test]
fn a_config_map_is_the_only_source_of_settings() {
    let set = ["POSTERN_JWKS=https://a/keys", "POSTERN_AUDIENCE=a"];
    for name in ["postern/config-map", "postern/config-file"] {
        let both = json!({name: "own", "postern/secret": "own"});
        for (annotations, has_secret) in [(json!({name: "own"}), false), (both, true)] {
            let patch = patch_of(&annotations, &set);
            assert!(!patch.contains("POSTERN_JWKS"), "{patch}");
            assert_eq!(patch.contains("POSTERN_APP_ID"), has_secret, "{patch}");
            assert_eq!(patch.contains("secretName"), has_secret, "{patch}");
        }
    }
}

#[test]
fn a_file_is_mounted_and_needs_no_secret() {
    let file = json!({"postern/config-file": "own"});
    let both = json!({"postern/config-file": "own", "postern/config-map": "values"});
    for (annotations, has_map) in [(file, false), (both, true)] {
        let patch = patch_of(&annotations, &[]);
        for part in [
            r#"{"name":"POSTERN_CONFIG","value":"/etc/postern/sidecar.toml"}"#,
            r#"{"mountPath":"/etc/postern","name":"postern-sidecar-file","readOnly":true}"#,
            r#"{"configMap":{"name":"own"},"name":"postern-sidecar-file"}"#,
        ] {
            assert!(patch.contains(part), "{part} in {patch}");
        }
        assert!(!patch.contains("POSTERN_AUTH_SERVER") && !patch.contains("secretName"));
        assert_eq!(patch.contains("configMapRef"), has_map);
    }
}

#[test]
fn two_sources_of_keys_are_an_error() {
    let sources = ["POSTERN_AUTH_SERVER", "POSTERN_JWKS", "POSTERN_ISSUER_URL"];
    for one in sources {
        for other in sources {
            let set = [format!("{one}=https://a"), format!("{other}=https://a")];
            let args = SidecarsArgs {
                set: set.to_vec(),
                ..SidecarsArgs::default()
            };
            assert_eq!(Settings::new(&args).is_ok(), one == other, "{set:?}");
        }
    }
}

#[test]
fn a_protocol_that_pods_do_not_learn_of_is_a_warning() {
    let port = |target: Value, word: &str| json!({"targetPort": target, "appProtocol": word});
    let named = |name: &str, target: Value| json!({"name": name, "targetPort": target});
    let number = json!(3000);
    for (port, warns) in [
        (port(json!("api"), "kubernetes.io/h2c"), true),
        (port(json!("api"), "grpc"), true),
        (port(number.clone(), "https"), true),
        (port(number.clone(), "https-web"), true),
        (port(json!("https-api"), "grpc"), true),
        (port(json!("grpc"), "kubernetes.io/h2c"), false),
        (port(json!("api"), "http"), false),
        (port(json!("api"), ""), false),
        (port(json!("api"), "mysql"), false),
        // It is moved already.
        (port(json!(18080), "grpc"), false),
        (named("grpc-api", number.clone()), true),
        (named("http2-x", json!("api")), true),
        (named("grpc-api", json!("h2c-x")), false),
        // It may end at a load balancer.
        (named("https-web", number), false),
        (named("http-web", json!("api")), false),
        (named("grpcapi", json!("api")), false),
    ] {
        let mut port = port;
        port["port"] = 80.into();
        // Open ports lead to no sidecar, whatever they say.
        let open = json!({"name": "open", "port": 81, "appProtocol": "grpc"});
        let udp = json!({"name": "quic", "port": 80, "appProtocol": "https", "protocol": "UDP"});
        let service = json!({
            "kind": "Service",
            "metadata": {
                "name": "web", "labels": {"postern/sidecar": "true"},
                "annotations": {"postern/open-ports": "open, quic"},
            },
            "spec": {"ports": [port, open, udp]},
        });
        let body = request(&service).to_string();
        let (_, reviewed) = review(body.as_bytes(), settings()).unwrap();
        let response = &reviewed["response"];
        let warnings = response["warnings"].to_string();
        let found = warnings.contains("postern/upstream-protocol");
        assert_eq!(
            (&response["allowed"], found),
            (&true.into(), warns),
            "{service}: {warnings}"
        );
    }
}
