//! Rejected gRPC calls: the status of the call in the head, and no body.

use tests::actors::sidecar::SidecarPlan;
use tests::actors::stack::ForgedStack;
use tests::services::h2_service::H2Service;
use tests::wait;
use tests::wire::h2_client::H2Client;
use tests::wire::metrics::sum;
use tests::wire::raw_client::exchange;

#[test]
fn a_rejected_grpc_call_gets_status_and_reason_in_its_head() {
    let service = H2Service::start();
    let stack = ForgedStack::before(&service.url(), &[]);
    let sidecar = &stack.sidecar;
    let keyless = SidecarPlan::to(&service.url(), "http://127.0.0.1:1/auth").start();
    let gone = stack.in_front_of("h2c://127.0.0.1:1", &[]);
    let bearer = format!("Bearer {}", stack.token());
    let of_long_name = format!("Bearer {}", stack.token_of_long_name());
    let call = "/orders/pkg.Service/Chat";
    let (malformed, basic) = ("Bearer a.b.c", "Basic eDp5");
    for (sidecar, path, authorization, verdict) in [
        (sidecar, call, "", "grpc 16 token_missing"),
        (sidecar, call, malformed, "grpc 16 token_malformed"),
        (sidecar, call, basic, "grpc 16 authorization_scheme"),
        (
            sidecar,
            "/orders/../x",
            &bearer,
            "grpc 3 path_not_canonical",
        ),
        (&keyless, call, &bearer, "grpc 14 auth_keys_unavailable"),
        (&gone, call, &bearer, "grpc 14 upstream_unavailable"),
        (sidecar, call, &of_long_name, "grpc 8 identity_too_large"),
    ] {
        let authorization = (!authorization.is_empty()).then_some(authorization);
        for media_type in ["application/grpc", "application/grpc+proto; x=y"] {
            let mut fields = vec![("content-type", media_type), ("te", "trailers")];
            fields.extend(authorization.map(|value| ("authorization", value)));
            let client = H2Client::connect(sidecar.address());
            let request = client.request("POST", path, &fields);
            let response = client.send(request, b"").unwrap();
            assert_eq!(response.verdict(), verdict, "{media_type}");
            assert_eq!(response.head.status(), 200);
            let fields = response.head.headers();
            assert_eq!(fields["content-type"], "application/grpc");
            assert!(!fields.contains_key("content-length"));
            let is_later = verdict.ends_with("keys_unavailable");
            assert_eq!(fields.contains_key("retry-after"), is_later, "{verdict}");
            assert!(response.body.is_empty() && response.trailers.is_empty());
        }
    }
    let counted = || {
        let labels = [("reason", "token_missing"), ("code", "2xx")];
        sum(sidecar.admin(), "postern_sidecar_requests_total", &labels)
    };
    wait::until("the rejections to be counted", || counted() == 2);
}

#[test]
fn what_is_no_grpc_call_gets_the_envelope() {
    let stack = ForgedStack::start();
    let client = H2Client::connect(stack.sidecar.address());
    for (method, media_type) in [
        ("POST", "application/grpc-web+proto"),
        ("POST", "application/grpcx"),
        ("GET", "application/grpc"),
    ] {
        let request = client.request(method, "/orders/x", &[("content-type", media_type)]);
        let response = client.send(request, b"").unwrap();
        let found = response.verdict();
        assert_eq!(found, "401 token_missing", "{method} {media_type}");
    }
    let request = "POST /orders/x HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\n\
                   Content-Length: 0\r\n\r\n";
    let response = exchange(stack.sidecar.address(), "POST", request.as_bytes());
    let expected = (401, "token_missing".into());
    assert_eq!((response.status(), response.reason()), expected);
}
