//! Spans over OTLP, from a client through both programs to the service.

use serde_json::json;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, LOGIN, credentials};
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::programs::Program;
use tests::actors::sidecar::{Sidecar, SidecarPlan};
use tests::actors::stack::ForgedStack;
use tests::services::echo_service::EchoService;
use tests::services::h2_service::H2Service;
use tests::services::otlp_collector::{Collector, SeenSpan};
use tests::services::tls_service::TlsService;
use tests::wait;
use tests::wire::certificates::Authority;
use tests::wire::clock;
use tests::wire::h2_client::H2Client;
use tests::wire::metrics::sum;

use crate::e2e::configuration::command_line::SIDECAR;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

/// Returns the `traceparent` of a client's span.
fn traceparent(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-{flags}")
}

fn auth_server(collector: &Collector) -> AuthServer {
    let plan = AuthServerPlan::new().environments(&collector.environment());
    plan.ready()
}

fn sidecar(service: &EchoService, auth_server: &str, environment: &[(&str, String)]) -> Sidecar {
    let plan = SidecarPlan::new(service, auth_server);
    plan.environments(environment).ready()
}

fn span(collector: &Collector, what: &str, is: impl Fn(&SeenSpan) -> bool) -> SeenSpan {
    wait::until(what, || collector.spans().into_iter().find(|span| is(span)))
}

#[test]
fn one_trace_leads_from_a_client_through_both_programs() {
    let collector = Collector::start();
    let auth_server = auth_server(&collector);
    let service = EchoService::start();
    let sidecar = sidecar(&service, &auth_server.url(), &collector.environment());

    let client = auth_server.anonymous();
    let login = client.request("POST", LOGIN).line(traceparent("01"));
    let token = client.send(&login.json(&credentials())).access_token();
    let client = sidecar.bearing(&token);
    client.send(&client.request("GET", "/42?q=hush").line(traceparent("01")));

    let of_login = span(&collector, "the login's span", |span| {
        span.trace_id == TRACE && span.service == "postern-auth-server"
    });
    let found = (of_login.kind, of_login.parent_id.as_str());
    assert_eq!(found, (SERVER, "00f067aa0ba902b7"));
    assert_eq!(
        of_login.name,
        format!("POST {}", of_login.attribute("http.route").unwrap())
    );
    assert!(of_login.name.ends_with("/oauth/jwt/token"), "{of_login:?}");
    for (name, value) in [
        ("postern.outcome", "responded"),
        ("url.scheme", "http"),
        ("network.protocol.version", "1.1"),
    ] {
        assert_eq!(of_login.attribute(name), Some(value), "{of_login:?}");
    }
    let of_request = span(&collector, "the request's span", |span| {
        span.trace_id == TRACE && span.service == "postern-sidecar"
    });
    assert_eq!((of_request.kind, of_request.name.as_str()), (SERVER, "GET"));
    for (name, value) in [
        ("url.path", "/orders/42"),
        ("http.response.status_code", "200"),
        ("postern.outcome", "verified"),
        ("client.address", "127.0.0.1"),
    ] {
        assert_eq!(of_request.attribute(name), Some(value), "{of_request:?}");
    }
    let seen = service.last_request().header("traceparent").concat();
    assert_eq!(seen, format!("00-{TRACE}-{}-01", of_request.span_id));

    let fetch = span(&collector, "the span of the key fetch", |span| {
        span.kind == CLIENT
    });
    let served = span(&collector, "the span of its response", |span| {
        span.service == "postern-auth-server" && span.parent_id == fetch.span_id
    });
    assert_eq!(served.trace_id, fetch.trace_id);
    let exported = "postern_sidecar_spans_exported_total";
    wait::until("exported spans", || sum(sidecar.admin(), exported, &[]) > 0);
    let all = format!("{:?}", collector.spans());
    for secret in ["hush", &token, "not-registered"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
}

#[test]
fn a_rejection_and_a_failure_have_their_reason_in_the_span() {
    let collector = Collector::start();
    let stack = ForgedStack::with(|plan| plan.environments(&collector.environment()));
    stack.sidecar.anonymous().get("/rejected");
    let rejected = span(&collector, "the rejection", |span| {
        span.attribute("postern.reason") == Some("token_missing")
    });
    assert!(
        !rejected.failed && rejected.parent_id.is_empty(),
        "{rejected:?}"
    );
    assert_eq!(rejected.attribute("http.response.status_code"), Some("401"));
    stack.service.responds(b"no HTTP\r\n\r\n".to_vec());
    stack.sidecar.bearing(&stack.token()).get("/list");
    let failed = span(&collector, "the failure", |span| {
        span.attribute("postern.reason") == Some("upstream_malformed")
    });
    assert!(failed.failed, "{failed:?}");
}

#[test]
fn a_request_that_a_deadline_ends_has_its_end_in_the_span() {
    let collector = Collector::start();
    let stack = ForgedStack::start();
    let service = H2Service::start();
    let plan = stack.plan(&service.url());
    let plan = plan.flags(["--leeway", "0", "--request-body-timeout", "1"]);
    let sidecar = plan.environments(&collector.environment()).ready();
    let client = H2Client::connect(sidecar.address());
    let now = clock::now();
    let open = |media_type: &str, expiry: i64| {
        let token = stack.forge.token(now, &json!({"exp": expiry}));
        let bearer = format!("Bearer {token}");
        let fields = [("authorization", &*bearer), ("content-type", media_type)];
        let mut stream = client.open(client.request("POST", "/orders/a/b", &fields));
        stream.write(b"x").unwrap();
        stream
    };
    let streams = [
        open("application/grpc", now + 3),
        open("text/plain", now + 300),
    ];
    for (cause, outcome, reason) in [
        ("the token of the stream has expired", "verified", None),
        (
            "the body came too slowly",
            "rejected",
            Some("request_timeout"),
        ),
    ] {
        let ended = span(&collector, cause, |span| {
            span.attribute("error.message") == Some(cause)
        });
        for (name, value) in [
            ("postern.outcome", Some(outcome)),
            ("postern.reason", reason),
            ("client.address", Some("127.0.0.1")),
            ("url.path", Some("/orders/a/b")),
        ] {
            assert_eq!(ended.attribute(name), value, "{name}: {ended:?}");
        }
    }
    drop(streams);
}

#[test]
fn a_trace_that_is_not_sampled_is_passed_on_and_not_exported() {
    let collector = Collector::start();
    let mut environment = collector.environment().to_vec();
    environment.push(("OTEL_TRACES_SAMPLER", "parentbased_always_off".to_owned()));
    let auth_server = AuthServer::start();
    let service = EchoService::start();
    let sidecar = sidecar(&service, &auth_server.url(), &environment);
    let client = sidecar.bearing(&auth_server.login());
    let header = |request: &Request| {
        client.send(request);
        service.last_request().header("traceparent").concat()
    };
    let request = client.request("GET", "/a").line(traceparent("00"));
    let found = header(&request);
    assert_eq!(found, traceparent("00").replace("traceparent: ", ""));
    let root = header(&client.request("GET", "/a"));
    assert!(root.starts_with("00-") && root.ends_with("-00"), "{root}");
    let sampled = header(&client.request("GET", "/a").line(traceparent("01")));
    assert!(sampled.starts_with(&format!("00-{TRACE}-")) && sampled.ends_with("-01"));
    span(&collector, "the sampled one", |span| span.trace_id == TRACE);
    assert!(collector.spans().iter().all(|span| span.trace_id == TRACE));
}

#[test]
fn a_collector_that_is_away_costs_a_request_nothing() {
    let stack = ForgedStack::with(|plan| {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "500"),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "2"),
        ];
        plan.environments(&variables).flags(["--lame-duck", "0"])
    });
    let client = stack.sidecar.bearing(&stack.token());
    for _ in 0..50 {
        assert_eq!(client.status("/list"), 200);
    }
    let spans = |what| {
        let name = format!("postern_sidecar_spans_{what}_total");
        sum(stack.sidecar.admin(), &name, &[])
    };
    wait::until("a span of each", || spans("recorded") >= 50);
    assert_eq!(spans("exported"), 0);
    let lines = stack.sidecar.until_logged("spans were not exported");
    assert_eq!(lines, 1);
    stack.sidecar.process().terminate();
    assert_eq!(stack.sidecar.into_process().finished().code, Some(0));
}

#[test]
fn without_a_collector_nothing_is_traced() {
    let stack = ForgedStack::with(|plan| plan.environment("OTEL_SERVICE_NAME", "orders"));
    let client = stack.sidecar.bearing(&stack.token());
    client.send(&client.request("GET", "/a").line(traceparent("01")));
    client.get("/b");
    let headers: Vec<String> = stack
        .service
        .requests()
        .iter()
        .map(|request| request.header("traceparent").concat())
        .collect();
    assert_eq!(headers[0], traceparent("01").replace("traceparent: ", ""));
    // No parent is invented that a tracing system would miss.
    assert_eq!(headers[1], "");
    let metrics = tests::actors::auth_server::admin_get(stack.sidecar.admin(), "/metrics").text();
    assert!(!metrics.contains("spans_"), "{metrics}");
}

#[test]
fn the_state_of_another_trace_ends_where_a_new_one_begins() {
    let collector = Collector::start();
    let stack = ForgedStack::with(|plan| plan.environments(&collector.environment()));
    let client = stack.sidecar.bearing(&stack.token());
    for (parent, state) in [
        (traceparent("01"), &["a=1"][..]),
        ("traceparent: 00-0-0-01".to_owned(), &[]),
        ("traceparent-x: 1".to_owned(), &[]),
    ] {
        let request = client.request("GET", "/a").line(&*parent);
        client.send(&request.line("tracestate: a=1"));
        let seen = stack.service.last_request().header("tracestate");
        assert_eq!(seen, state, "{parent}");
    }
}

/// Operators set them for every container of a cluster.
#[test]
fn a_variable_that_cannot_be_used_turns_the_export_off() {
    let stack = ForgedStack::start();
    for (name, value) in [
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "http://me:hush@127.0.0.1:4318",
        ),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent/hush.pem"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_TRACES_EXPORTER", "console"),
    ] {
        let plan = stack.plan(&stack.service.url());
        let plan = plan.environment("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
        let sidecar = plan.environment(name, value).ready();
        let client = sidecar.bearing(&stack.token());
        assert_eq!(client.status("/list"), 200, "{name}={value}");
        let line = sidecar.process().line_with("no spans are exported: ");
        has(&line, name);
        let log = sidecar.process().output();
        assert_eq!(log.matches("no spans").count(), 1, "{log}");
        assert!(!log.contains("me:hush"), "{log}");
    }
    let check = |program: Program| program.command().arguments(["check"]);
    for check in [
        check(Program::Sidecar).arguments(&SIDECAR[1..]),
        check(Program::AuthServer),
    ] {
        let check = check.environment("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
        let end = check
            .environment("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
            .run();
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        has(
            &end.stdout,
            "# warning: no spans are exported: OTEL_EXPORTER_OTLP_PROTOCOL",
        );
    }
}

#[test]
fn a_failed_export_names_its_cause() {
    let (authority, stack) = (Authority::new(), ForgedStack::start());
    let over_tls = TlsService::start(&authority.issue("server"), None);
    let ca = authority.file().display().to_string();
    let other = Authority::new();
    let other = other.file().display().to_string();
    for (endpoint, ca, cause) in [
        (
            "http://127.0.0.1:4317",
            &ca,
            "4317 is the port for gRPC, 4318 for HTTP",
        ),
        (
            &*over_tls.url("127.0.0.1"),
            &other,
            "OTEL_EXPORTER_OTLP_CERTIFICATE names a file",
        ),
    ] {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ];
        let sidecar = stack
            .plan(&stack.service.url())
            .environments(&variables)
            .ready();
        sidecar.bearing(&stack.token()).get("/list");
        has(
            sidecar.process().line_with("spans were not exported"),
            cause,
        );
    }
}
