//! The pass list beside its tables: bypasses that fail, and patterns that stop a start (contract
//! §4.4).

use tests::auth_server::AuthServerPlan;
use tests::client::Request;
use tests::echo_service::EchoService;
use tests::keys::SigningType;
use tests::raw_client::exchange;
use tests::sidecar::SidecarPlan;
use tests::stack::ForgedStack;
use tests::tables::{self, PatternTable, Verdicts};
use wire::http::path_patterns::PassList;

#[test]
fn contract_4_4_on_a_pass_listed_path_the_token_is_not_read() {
    let stack = ForgedStack::with(SigningType::Ecdsa, |plan| plan.public_paths(["/public/**"]));
    for credentials in [
        "Authorization: Bearer x.y.z",
        "Authorization: Basic YTpi",
        "Authorization: Bearer a, Bearer b",
    ] {
        let client = stack.sidecar.anonymous();
        let response = client.send(&client.request("GET", "/public/x").line(credentials));
        assert_eq!(response.status(), 200, "{credentials}");
        let line = credentials.to_owned();
        assert!(
            stack.service.last_request().header_lines().contains(&line),
            "{credentials} passes through"
        );
    }
}

#[test]
fn lesson_c20_no_other_header_and_no_method_opens_a_door() {
    let stack = ForgedStack::with(SigningType::Ecdsa, |plan| plan.public_paths(["/public/**"]));
    let client = stack.sidecar.anonymous();
    for line in [
        "X-Original-URL: /orders/public/x",
        "X-Rewrite-URL: /orders/public/x",
        "X-Forwarded-Uri: /orders/public/x",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Host: localhost",
        "X-HTTP-Method-Override: OPTIONS",
        "User-Agent: kube-probe/1.30",
        "Origin: https://app.example",
    ] {
        let response = client.send(&client.request("GET", "/list").line(line));
        assert!(response.status() >= 400, "{line}");
    }
    let as_localhost = Request::new("GET", "/orders/list").bytes("localhost");
    assert_eq!(
        exchange(stack.sidecar.address(), "GET", &as_localhost).status(),
        401
    );
    for method in ["OPTIONS", "HEAD", "POST", "PROPFIND", "X"] {
        let response = client.send(
            &client
                .request(method, "/list")
                .line("Access-Control-Request-Method: GET"),
        );
        assert_eq!(response.status(), 401, "{method}");
    }
    assert_eq!(stack.service.requests().len(), 0);
}

#[test]
fn contract_4_4_a_bad_pattern_stops_both_programs() {
    let service = EchoService::start();
    let mut verdicts = Verdicts::default();
    for row in tables::load::<PatternTable>("bad_patterns.toml").bad {
        let pass = format!("--public-path={}", row.pattern);
        let ends = [
            SidecarPlan::new(&service, "http://127.0.0.1:1/auth")
                .flags([pass.as_str()])
                .fails(),
            AuthServerPlan::new().flags([pass.as_str()]).fails(),
        ];
        for end in ends {
            let one_line = end.stderr.lines().count() == 1 && end.stderr.contains("--public-path");
            let difference = (end.code != Some(78) || !one_line)
                .then(|| format!("exit {:?}: {} ({})", end.code, end.stderr, row.why));
            verdicts.row(&format!("{:?}", row.pattern), difference);
        }
    }
    verdicts.conclude();
}

#[test]
fn contract_4_4_the_contract_crate_rejects_the_same_patterns() {
    for row in tables::load::<PatternTable>("bad_patterns.toml").bad {
        assert!(
            PassList::parse([row.pattern.as_str()]).is_err(),
            "{:?}: {}",
            row.pattern,
            row.why
        );
    }
}
