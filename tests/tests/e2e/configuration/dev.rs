//! `auth-server dev`: tokens with any claims for development and tests on one machine.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tests::actors::browser::Browser;
use tests::actors::client::{Client, Request};
use tests::actors::expect::has;
use tests::actors::process::{CommandLine, Process};
use tests::actors::programs::Program;
use tests::actors::proving_client::ProvingClient;
use tests::actors::token_forge::payload_of;
use tests::services::echo_service::EchoService;
use tests::wait;
use tests::wire::message::Message;
use tests::wire::raw_client::exchange;
use token_corpus::keys::Algorithm;

const FREE_PORTS: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];

/// A running `auth-server dev`.
struct DevServer {
    process: Process,
    address: SocketAddr,
}

impl DevServer {
    fn start() -> Self {
        Self::with(&[])
    }

    fn with(flags: &[&str]) -> Self {
        let (process, address) = started(Program::AuthServer, &[&["dev"], flags].concat());
        Self { process, address }
    }

    fn url(&self) -> String {
        format!("http://{}/auth", self.address)
    }

    fn response(&self, host: &str, body: &str) -> Message {
        let request = Request::new("POST", "/auth/dev/token").body(body);
        exchange(self.address, "POST", &request.bytes(host))
    }

    fn token(&self, claims: &Value) -> String {
        let response = self.response(&self.address.to_string(), &claims.to_string());
        let token = response.json()["access_token"].as_str().map(str::to_owned);
        token.unwrap_or_else(|| panic!("no token: {}", response.text()))
    }

    /// Starts a sidecar with the line that the server printed, in front of `service`.
    fn sidecar(&mut self, service: &EchoService) -> (Process, Client) {
        let line = self.process.announced("  A sidecar   sidecar ");
        let mut words: Vec<_> = line.split(' ').collect();
        let upstream = service.url();
        *words.last_mut().unwrap() = &upstream;
        sidecar(&words)
    }
}

fn started(program: Program, words: &[&str]) -> (Process, SocketAddr) {
    let command = CommandLine::new(program.path()).arguments(words);
    let mut process = command.arguments(FREE_PORTS).start();
    let address = process.announced("listening on ").parse().unwrap();
    (process, address)
}

fn sidecar(words: &[&str]) -> (Process, Client) {
    let (process, address) = started(Program::Sidecar, words);
    let client = Client::anonymous(Program::Sidecar, address, "");
    wait::until("the sidecar to have keys", || {
        client.bearing("x").verdict("/42") != "503 auth_keys_unavailable"
    });
    (process, client)
}

#[test]
fn the_printed_sidecar_takes_a_token_with_any_claims() {
    let (mut server, service) = (DevServer::start(), EchoService::start());
    let (_process, client) = server.sidecar(&service);
    let claims = json!({"userId": "7", "username": "ada", "extraInfo": {"tenantId": "t1"}});
    let token = server.token(&claims);
    let details = client.bearing(&token).get("/current/user/details").json();
    assert_eq!(details["data"]["id"], "7");
    assert_eq!(details["data"]["account"], "ada");
    assert_eq!(details["data"]["tenantId"], "t1");
    assert_eq!(client.bearing(&token).verdict("/42"), "200");
}

#[test]
fn each_claim_can_be_wrong() {
    let (mut server, service) = (DevServer::start(), EchoService::start());
    let (_process, client) = server.sidecar(&service);
    for (claims, expected) in [
        (json!({}), "200"),
        (json!({"lifetime": -60}), "401 token_expired"),
        (json!({"exp": null}), "401 token_claim_missing"),
        (json!({"exp": 1}), "401 token_expired"),
        (
            json!({"nbf": 32_503_680_000_u64}),
            "401 token_not_yet_valid",
        ),
        (json!({"userId": 7}), "401 token_claim_invalid"),
        (json!({"username": null}), "401 token_claim_missing"),
        (json!({"aud": "dev"}), "200"),
        (json!({"aud": ["billing", "orders"]}), "401 token_audience"),
        (json!({"aud": []}), "401 token_audience"),
    ] {
        let token = server.token(&claims);
        assert_eq!(client.bearing(&token).verdict("/42"), expected, "{claims}");
    }
}

#[test]
fn a_proof_binds_the_token_of_the_page_too() {
    let (server, client) = (DevServer::start(), ProvingClient::new(Algorithm::ES256));
    let url = server.url() + "/dev/token";
    let response = |proof: &str| {
        let request = Request::new("POST", "/auth/dev/token").line(format!("DPoP: {proof}"));
        let request = request.bytes(&server.address.to_string());
        exchange(server.address, "POST", &request)
    };
    let bound = response(&client.proof("POST", &url, "", &json!({"ath": null}))).json();
    assert_eq!(bound["token_type"], "DPoP");
    let token = bound["access_token"].as_str().unwrap();
    assert_eq!(payload_of(token)["cnf"], client.cnf());
    assert_eq!(response("garbage").status(), 400);
}

#[test]
fn the_printed_sidecar_accepts_the_audience_of_its_server() {
    let mut server = DevServer::with(&["--audience", "orders,stock"]);
    let service = EchoService::start();
    let (_process, client) = server.sidecar(&service);
    let token = server.token(&json!({}));
    assert_eq!(client.bearing(&token).verdict("/42"), "200");
}

#[test]
fn its_issuer_can_be_discovered() {
    let (server, service) = (DevServer::start(), EchoService::start());
    let (issuer, upstream) = (server.url(), service.url());
    let words = [
        "serve",
        "--issuer-url",
        &issuer,
        "--audience",
        "orders",
        "--upstream",
        &upstream,
    ];
    let (_process, client) = sidecar(&words);
    let token = |audience| server.token(&json!({"aud": audience}));
    assert_eq!(client.bearing(&token("orders")).verdict("/42"), "200");
    let found = client.bearing(&token("stock")).verdict("/42");
    assert_eq!(found, "401 token_audience");
}

#[test]
fn no_route_serves_a_page_whose_name_was_made_to_lead_here() {
    let server = DevServer::start();
    for path in [
        "/auth/oauth/jwt/token",
        "/auth/dev/token",
        "/auth/oauth/token",
    ] {
        let request = Request::new("POST", path);
        let request = request.body(r#"{"username": "ada", "password": "any"}"#);
        let response = exchange(server.address, "POST", &request.bytes("evil.example"));
        assert_eq!(response.status(), 400, "{path}");
    }
}

#[test]
fn what_is_no_request_for_a_token_is_an_error_of_rfc_6749() {
    let server = DevServer::start();
    let here = server.address.to_string();
    for (host, body, why) in [
        (here.as_str(), "[]", "the body is no JSON object"),
        (
            &here,
            r#"{"lifetime": "1h"}"#,
            "lifetime is no whole number of seconds",
        ),
        (
            "evil.example",
            "{}",
            "the Host field names no address of this machine",
        ),
    ] {
        let response = server.response(host, body);
        assert_eq!(response.status(), 400, "{body}");
        assert_eq!(response.json()["error"], "invalid_request");
        let description = response.json()["error_description"].to_string();
        has(&description, why);
    }
}

#[test]
fn a_token_is_made_by_hand_in_a_browser() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let server = DevServer::start();
    browser.open(&format!("{}/dev/", server.url()));
    browser.click("#form button");
    browser.until("#payload", "\"tenantId\": \"t1\"");
    let make_with = |claims: &str| {
        browser.run(&format!(
            "document.getElementById('claims').value = {}",
            json!(claims)
        ));
        browser.click("#form button");
    };
    for no_object in ["{", "null", "[1]"] {
        make_with(no_object);
        browser.until("#status", "No token: the claims are no JSON object");
        let displayed = "return document.getElementById('token').textContent";
        assert_eq!(
            browser.run(displayed),
            "",
            "the former token with {no_object}"
        );
        browser.until("#copy-token:disabled", "Copy the token");
        make_with("{}");
        browser.until("#status", "Made.");
    }
    make_with(r#"{"lifetime": -60, "nickName": "late"}"#);
    browser.until("#payload", "late");
    let left = "const {iat, exp} = JSON.parse(document.getElementById('payload').textContent); \
                return exp - iat";
    assert_eq!(browser.run(left), 0, "an expired token");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
