//! `postern-k8s webhook` over TLS: reviews as an API server sends them, and what no API server sends.

use std::fs;
use std::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::process::{CommandLine, Process};
use tests::actors::programs::Program;
use tests::wait;
use tests::wire::certificates::{Authority, Certificate};
use tests::wire::message::Message;
use tests::wire::raw_client::{RawClient, exchange};
use tests::wire::tls::Trust;

pub(crate) struct Webhook {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    authority: Authority,
    certificate: Certificate,
}

impl Webhook {
    pub(crate) fn start(flags: &[&str]) -> Self {
        let authority = Authority::new();
        let certificate = authority.issue("webhook");
        let command = command().arguments(certificate.flags());
        let mut process = command.arguments(flags).start();
        let admin = process.announced("admin listening on ").parse().unwrap();
        let address = process.announced("listening on ").parse().unwrap();
        Self {
            process,
            address,
            admin,
            authority,
            certificate,
        }
    }

    fn trust(&self) -> Trust {
        self.authority.client()
    }

    fn send(&self, request: &Request) -> Message {
        let mut connection = self.trust().connect(self.address).unwrap();
        connection.send(&request.bytes("webhook.postern.svc"));
        connection.response("POST")
    }

    fn review(&self, review: &Value) -> Value {
        let response = self.send(&Request::new("POST", "/mutate?timeout=5s").json(review));
        assert_eq!(response.status(), 200, "{response:?}");
        response.json()
    }

    pub(crate) fn metrics(&self) -> String {
        let request = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        exchange(self.admin, "GET", request).text()
    }
}

fn command() -> CommandLine {
    let command = Program::Kubernetes.command().arguments(["webhook"]);
    let command = command.arguments(["--listen", "127.0.0.1:0"]);
    command.arguments(["--admin-listen", "127.0.0.1:0"])
}

fn pod(labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "web-7d4b9c6f5-", "namespace": "shop", "labels": labels},
        "spec": {"containers": [{"name": "web", "image": "web:1.0.0", "ports": [{"containerPort": 9898}]}]},
    })
}

fn review(operation: &str, object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": object["kind"]},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop", "operation": operation, "dryRun": false,
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
            "object": object, "oldObject": null, "options": {"kind": "CreateOptions"},
        },
    })
}

fn protected() -> Value {
    json!({"app": "web", "postern/sidecar": "true"})
}

fn patch(response: &Value) -> Vec<Value> {
    assert_eq!(response["response"]["patchType"], "JSONPatch", "{response}");
    let patch = response["response"]["patch"].as_str().unwrap();
    serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap()
}

#[test]
fn the_webhook_puts_the_sidecar_into_labelled_pods() {
    let webhook = Webhook::start(&["--image", "registry.example.com/postern/sidecar:1.2.3"]);
    let response = webhook.review(&review("CREATE", &pod(&protected())));
    assert_eq!(response["kind"], "AdmissionReview");
    let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
    assert_eq!(response["response"]["uid"], uid);
    let operations = patch(&response);
    let spec = operations.iter().find(|each| each["path"] == "/spec");
    let container = &spec.unwrap()["value"]["initContainers"][0];
    let found = &container["image"];
    assert_eq!(found, "registry.example.com/postern/sidecar:1.2.3");
    assert!(container.to_string().contains("http://127.0.0.1:9898"));

    let mut dry_run = review("CREATE", &pod(&protected()));
    dry_run["request"]["dryRun"] = true.into();
    assert_eq!(webhook.review(&dry_run), response);
    for allowed in [
        review("CREATE", &pod(&json!({"app": "web"}))),
        review("UPDATE", &pod(&protected())),
        review("DELETE", &Value::Null),
    ] {
        let expected = json!({"uid": uid, "allowed": true, "warnings": []});
        assert_eq!(webhook.review(&allowed)["response"], expected);
    }
    let mut ephemeral = review("UPDATE", &pod(&protected()));
    ephemeral["request"]["subResource"] = "ephemeralcontainers".into();
    assert_eq!(webhook.review(&ephemeral)["response"]["patch"], Value::Null);

    let mut on_the_node = pod(&protected());
    on_the_node["spec"]["hostNetwork"] = true.into();
    let response = &webhook.review(&review("CREATE", &on_the_node))["response"];
    assert_eq!(response["allowed"], false);
    let message = response["status"]["message"].as_str().unwrap();
    has(message, "Pod shop/web-7d4b9c6f5-: hostNetwork");

    let metrics = webhook.metrics();
    for line in [
        "postern_webhook_reviews_total{outcome=\"patched\"} 2",
        "postern_webhook_reviews_total{outcome=\"allowed\"} 4",
        "postern_webhook_reviews_total{outcome=\"rejected\"} 1",
        "postern_webhook_reviews_total{outcome=\"malformed\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(metrics.contains("postern_webhook_tls_certificate_not_after_timestamp_seconds"));
}

#[test]
fn large_objects_are_reviewed_and_endless_ones_rejected() {
    let webhook = Webhook::start(&[]);
    let mut large = pod(&protected());
    large["metadata"]["annotations"] = json!({"example.com/blob": "x".repeat(1024 * 1024)});
    let mut update = review("CREATE", &large);
    update["request"]["oldObject"] = large.clone();
    assert!(!patch(&webhook.review(&update)).is_empty());

    let length = format!("Content-Length: {}", 8 * 1024 * 1024);
    let response = webhook.send(&Request::new("POST", "/mutate").line(length));
    assert_eq!(response.status(), 413);

    // Small values take many times their bytes.
    let mut many = pod(&protected());
    many["spec"]["x"] = vec![json!({"": 0}); 500_000].into();
    let body = review("CREATE", &many).to_string();
    let response = webhook.send(&Request::new("POST", "/mutate").body(body));
    assert_eq!(response.status(), 400, "{response:?}");
    assert!(webhook.process.peak_resident_kib().unwrap() < 200 * 1024);
}

#[test]
fn objects_of_many_parts_hold_up_no_review() {
    let webhook = Webhook::start(&[]);
    let mut annotated = workload();
    annotated["metadata"]["annotations"] = numbered(9_000, |number| format!("postern/a{number}"));
    let mut ports = pod(&protected());
    ports["metadata"]["annotations"] = json!({"postern/port": "9898"});
    let others = (0..15_000).map(|number| json!({"containerPort": 20_001 + number}));
    let declared = [json!({"containerPort": 9898})].into_iter().chain(others);
    ports["spec"]["containers"][0]["ports"] = declared.collect();
    let mut open = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "labels": {"postern/sidecar": "true"}},
        "spec": {"selector": {"app": "web"}},
    });
    let names: Vec<String> = (0..200_000).map(|number| format!("x{number}")).collect();
    open["metadata"]["annotations"] = json!({"postern/open-ports": names.join(",")});
    let ports_of_service = (1..6_000).map(|port| json!({"port": port, "targetPort": 9898}));
    open["spec"]["ports"] = ports_of_service.collect();
    for object in [annotated, ports, open] {
        let response = webhook.review(&review("CREATE", &object));
        assert_eq!(response["response"]["allowed"], true, "{response}");
    }
    let mut passing = pod(&protected());
    passing["metadata"]["annotations"] = json!({"postern/public-path": names.join(",/")});
    let response = &webhook.review(&review("CREATE", &passing))["response"];
    let message = response["status"]["message"].as_str().unwrap();
    has(message, "has more than 98304 bytes");
    assert!(message.len() < 1_000, "{message}");
}

/// Returns an object with this many members.
fn numbered(count: usize, name: impl Fn(usize) -> String) -> Value {
    let members = (0..count).map(|number| (name(number), json!("x")));
    Value::Object(members.collect())
}

fn workload() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": protected()},
        "spec": {"template": pod(&json!({"app": "web"}))},
    })
}

#[test]
fn slow_peers_hold_up_no_review() {
    let webhook = Webhook::start(&[]);
    let slow: Vec<_> = (0..40)
        .map(|_| {
            let mut connection = webhook.trust().connect(webhook.address).unwrap();
            connection.send(b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{");
            connection
        })
        .collect();
    for _ in 0..20 {
        let response = webhook.review(&review("CREATE", &pod(&protected())));
        assert_eq!(response["response"]["allowed"], true);
    }
    for mut connection in slow {
        assert_eq!(connection.response("POST").status(), 408);
    }
}

#[test]
fn what_is_no_review_is_a_bad_request() {
    let webhook = Webhook::start(&[]);
    for body in ["", "[1]", "{\"kind\":\"AdmissionReview\"}"] {
        let response = webhook.send(&Request::new("POST", "/mutate").body(body));
        assert_eq!(response.status(), 400, "{body}");
    }
    for (method, path, status) in [("POST", "/", 404), ("PUT", "/mutate", 405)] {
        let response = webhook.send(&Request::new(method, path).body("{}"));
        assert_eq!(response.status(), status, "{method} {path}");
    }
    let mut plain = RawClient::connect(webhook.address);
    plain.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(plain.response("GET").status(), 400, "without TLS");
}

#[test]
fn the_webhook_presents_a_replaced_certificate() {
    let webhook = Webhook::start(&[]);
    let trust = webhook.trust();
    let presented = || trust.connect(webhook.address).unwrap().presented();
    let first = presented();
    webhook.authority.issue("webhook");
    wait::until("another certificate", || presented() != first);
    assert!(webhook.certificate.cert.exists());
}

/// Returns true if this peer gets a response to a review.
fn is_served(trust: &Trust, address: SocketAddr) -> bool {
    let deleted = review("DELETE", &Value::Null);
    let request = Request::new("POST", "/mutate").line("Connection: close");
    let request = request.json(&deleted).bytes("webhook.postern.svc");
    // In TLS 1.3 the client learns of the rejection only when it reads.
    trust.connect(address).is_ok_and(|mut peer| {
        peer.send(&request);
        let rest = peer.rest();
        rest.is_ok_and(|response| response.starts_with(b"HTTP/1.1 200 "))
    })
}

#[test]
fn a_webhook_with_a_client_ca_reviews_for_its_clients_alone() {
    let clients = Authority::new();
    let ca = clients.file().display().to_string();
    let webhook = Webhook::start(&["--client-ca", &ca]);
    let api_server = webhook.trust().with_identity(&clients.issue("api-server"));
    let own = webhook.authority.issue("untrusted");
    let unknown = webhook.trust().with_identity(&own);
    assert!(is_served(&api_server, webhook.address));
    for trust in [&unknown, &webhook.trust()] {
        assert!(!is_served(trust, webhook.address));
    }

    // The other authority is followed, as the certificate is.
    fs::write(clients.file(), webhook.authority.pem()).unwrap();
    wait::until("the other authority", || {
        is_served(&unknown, webhook.address)
    });
    assert!(!is_served(&api_server, webhook.address));
    fs::write(clients.file(), "no certificate").unwrap();
    webhook.process.until_logged("--client-ca");
    assert!(is_served(&unknown, webhook.address));
}

#[test]
fn the_webhook_finishes_on_a_signal() {
    let webhook = Webhook::start(&[]);
    webhook.process.terminate();
    // While it reports not ready it still reviews.
    let response = webhook.review(&review("CREATE", &pod(&json!({}))));
    assert_eq!(response["response"]["allowed"], true);
    webhook.process.terminate();
    assert_eq!(webhook.process.finished().code, Some(0));
}
