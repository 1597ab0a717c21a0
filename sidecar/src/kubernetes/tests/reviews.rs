//! Reviews of the objects of a manifest, one after the other, as an API server sends them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{settings, values};
use crate::kubernetes::admission::review;
use crate::kubernetes::inject::inject;
use crate::kubernetes::object::{Object, objects};

fn request(object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "705ab4f5", "operation": "CREATE", "object": object},
    })
}

/// Returns the object as it is stored; `None` where it is rejected.
fn stored(object: &Value) -> Option<Value> {
    let body = request(object).to_string();
    let reviewed = review(body.as_bytes(), settings()).unwrap();
    let response = &reviewed.response["response"];
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
        apply(&mut stored, operation);
    }
    Some(stored)
}

/// Applies one operation as the RFC describes it, without the code under test.
fn apply(object: &mut Value, operation: &Value) {
    let path = operation["path"].as_str().unwrap();
    let (parent, last) = path.rsplit_once('/').unwrap();
    let last = last.replace("~1", "/").replace("~0", "~");
    let value = operation["value"].clone();
    match (object.pointer_mut(parent).unwrap(), &operation["op"]) {
        (Value::Array(items), op) if op == "add" => items.insert(last.parse().unwrap(), value),
        (Value::Object(members), op) => {
            assert!(op == "add" || members.contains_key(&last), "{operation}");
            members.insert(last, value);
        }
        (other, op) => unreachable!("{op} in {other}"),
    }
}

/// Asserts that the pods which the webhook makes of the workloads are those of `inject`.
pub(super) fn same_pods(text: &str) {
    let before = values(text);
    let Ok(injected) = inject(text, settings()) else {
        return;
    };
    let after = values(&injected.text);
    for (before, after) in before.iter().zip(&after) {
        for ((place, object), _) in objects(before).into_iter().zip(objects(after)) {
            if object.pod().is_none() || !object.wants_sidecar() {
                continue;
            }
            let expected = pod_of(after.pointer(&place).unwrap());
            let workload = stored(object.value()).unwrap();
            let pod = stored(&pod_of(&workload)).unwrap();
            assert_eq!(pod, expected, "{text}");
        }
    }
}

/// Returns the pod that a controller makes of a workload.
fn pod_of(workload: &Value) -> Value {
    let template = Object::new(workload).pod().unwrap().value().clone();
    let mut pod = template;
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod
}

#[test]
fn requests_without_a_new_pod_change_nothing() {
    let labels = json!({"postern/sidecar": "true", "app": "a"});
    let pod = json!({
        "kind": "Pod", "metadata": {"name": "a", "labels": labels},
        "spec": {"containers": [{"name": "a", "image": "a:1"}]},
    });
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
        let reviewed = review(body.to_string().as_bytes(), settings()).unwrap();
        let expected = json!({"uid": "705ab4f5", "allowed": true});
        assert_eq!(reviewed.response["response"], expected, "{change}");
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
    for (annotations, ports, moved) in [
        (
            json!({}),
            json!([{"port": 80, "targetPort": 3000}]),
            Some(8080),
        ),
        (json!({}), json!([{"port": 80}]), Some(8080)),
        (json!({}), json!([{"port": 80, "targetPort": 8080}]), None),
        (json!({}), json!([{"port": 80, "targetPort": "http"}]), None),
        (
            json!({"postern/port": "8080"}),
            json!([{"port": 80, "targetPort": 8080}]),
            Some(18080),
        ),
        (
            json!({"postern/port": "3000"}),
            json!([{"port": 80, "targetPort": "http"}]),
            Some(8080),
        ),
        (
            json!({"postern/sidecar-port": "8080"}),
            json!([{"port": 80, "targetPort": 8080}]),
            Some(8080),
        ),
        (
            json!({"postern/sidecar-port": "9000"}),
            json!([{"port": 80, "targetPort": "http"}]),
            Some(9000),
        ),
        (
            json!({}),
            json!([{"port": 80, "targetPort": 3000, "protocol": "UDP"}]),
            None,
        ),
        (
            json!({}),
            json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]),
            None,
        ),
        (
            json!({"postern/port": "80"}),
            json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]),
            None,
        ),
        (
            json!({"postern/port": "80", "postern/open-ports": "b"}),
            json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]),
            Some(8080),
        ),
        (
            json!({"postern/open-ports": "b, 7"}),
            json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]),
            Some(8080),
        ),
    ] {
        let service = json!({
            "kind": "Service",
            "metadata": {"labels": {"postern/sidecar": "true"}, "annotations": annotations},
            "spec": {"selector": {"app": "a"}, "ports": ports},
        });
        let stored_once = stored(&service);
        let target = stored_once
            .as_ref()
            .map(|service| service["spec"]["ports"][0]["targetPort"].clone());
        assert_eq!(target, moved.map(Value::from), "{service}");
        assert_eq!(
            stored_once.as_ref().and_then(stored),
            stored_once,
            "at the next review"
        );
    }
}
