//! Tokens that end before their expiry: revoked by their bearer, by a command, with their user; on
//! one sidecar and on several, through old lists.

mod lists;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tests::actors::auth_server::{
    AuthServer, AuthServerPlan, ECDSA, TOKEN_REVOKED, USER_DETAILS, file_store,
};
use tests::actors::client::{Client, FORM};
use tests::actors::expect::has;
use tests::actors::programs::Program;
use tests::actors::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};
use tests::actors::token_forge::{header_of, jti_of, payload_of};
use tests::services::echo_service::EchoService;
use tests::services::redis_server::Redis;
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::services::streaming_service::StreamingService;
use tests::wait;
use tests::wire::raw_client::{HANDSHAKE, RawClient, exchange, head_with_token};

const LIST: &str = "/.well-known/revocations";

/// Waits until the sidecar holds a list.
fn until_fetched(sidecar: &Sidecar) {
    wait::until("the first revocation list", || {
        sidecar.metric("postern_sidecar_revocations")
    });
}

fn allowed(client: &Client) {
    assert_eq!(client.verdict("/list"), "200");
}

#[test]
fn a_logout_ends_the_token_on_every_sidecar_and_no_other() {
    let server = AuthServerPlan::polling().ready();
    let service = EchoService::start();
    let sidecars: Vec<_> = (0..4)
        .map(|_| SidecarPlan::polling(&service, &server.url()).ready())
        .collect();
    let (token, other) = (server.login(), server.login());
    for sidecar in &sidecars {
        // Remembered as verified.
        allowed(&sidecar.bearing(&token));
        allowed(&sidecar.bearing(&other));
    }
    assert_eq!(server.log_out(&token).status(), 200);
    assert_eq!(server.verdict(&token), TOKEN_REVOKED);
    for sidecar in &sidecars {
        sidecar.until_revoked(&token);
        let details = sidecar.bearing(&token).get(USER_DETAILS);
        assert_eq!(details.verdict(), TOKEN_REVOKED);
        assert!(details.header("www-authenticate")[0].contains("invalid_token"));
        allowed(&sidecar.bearing(&other));
    }
    let revocations = sidecars[0].metric("postern_sidecar_revocations");
    assert_eq!(revocations, Some(1));
    // Again, and for a token that was never issued.
    assert_eq!(server.log_out(&token).status(), 200);
    assert_eq!(server.log_out("a.b.c").status(), 200);
    let output = server.process().output();
    let line = format!("event=token_revoked jti=\"{}\"", jti_of(&token));
    assert_eq!(output.matches(&line).count(), 1, "{output}");
}

#[test]
fn what_is_no_request_to_revoke_is_an_error_of_the_rfc() {
    let server = AuthServerPlan::polling().ready();
    let token = server.login();
    let client = server.anonymous();
    for (line, body) in [
        (FORM, "token_type_hint=access_token"),
        (FORM, "token="),
        (FORM, "token=a.b.c&token=d.e.f"),
        ("Content-Type: application/json", "{\"token\":\"a.b.c\"}"),
        ("X-Nothing: 1", ""),
    ] {
        let request = client
            .request("POST", "/oauth/revoke")
            .line(line)
            .body(body);
        let response = client.send(&request);
        assert_eq!(response.status(), 400, "{body}");
        assert_eq!(response.json()["error"], "invalid_request", "{body}");
    }
    assert_eq!(client.status("/oauth/revoke"), 405);
    // Without a body the bearer's own token ends.
    let bearer = client.bearing(&token);
    assert_eq!(bearer.verdict(USER_DETAILS), "200");
    let request = bearer.request("POST", "/oauth/revoke").body("");
    assert_eq!(bearer.send(&request).status(), 200);
    assert_eq!(bearer.verdict(USER_DETAILS), TOKEN_REVOKED);
}

#[test]
fn the_tokens_of_an_application_end_by_command_and_with_it() {
    let server = AuthServerPlan::polling().ready();
    let add = |id: &str| {
        let words = ["application", "add", "--app-id", id, "--audience=orders"];
        server.done(&words)
    };
    let (jobs, other) = (add("jobs"), add("other"));
    let token_for = |id: &str, secret: &str| {
        wait::until("a token for the application", || {
            let response = server.grant(id, secret, "");
            (response.status() == 200).then(|| response.access_token())
        })
    };
    let service = EchoService::start();
    let sidecar = SidecarPlan::polling(&service, &server.url())
        .application("other", &other)
        .flags(["--audience", "orders"])
        .ready();
    let (of_jobs, of_other) = (token_for("jobs", &jobs), token_for("other", &other));
    allowed(&sidecar.bearing(&of_jobs));
    server.done(&["revoke", "--app", "jobs"]);
    sidecar.until_revoked(&of_jobs);
    allowed(&sidecar.bearing(&of_other));
    let mut last = wait::until("a token after the revocation", || {
        let token = token_for("jobs", &jobs);
        (sidecar.verdict_of(&token) == "200").then_some(token)
    });
    let end = server.command(&["application", "remove", "--app-id", "jobs"]);
    end.says(0, "revoked");
    // A server that has not read the store yet may issue another token.
    wait::until("the server to reject the application", || {
        let response = server.grant("jobs", &jobs, "");
        if response.status() == 200 {
            last = response.access_token();
        }
        response.status() == 401
    });
    sidecar.until_revoked(&last);
    allowed(&sidecar.bearing(&of_other));
    server.done(&["revoke", "--all"]);
    sidecar.until_revoked(&of_other);
}

#[test]
fn a_user_is_revoked_by_the_id_without_a_prefix() {
    let server = AuthServerPlan::polling().ready();
    let service = EchoService::start();
    let table =
        "[[issuer]]\nname = 'members'\nissuer = 'auth'\nauth-server = true\nuser-prefix = 'm:'\n";
    let plan = SidecarPlan::polling(&service, &server.url());
    let sidecar = plan.config(table).ready();
    let token = server.login();
    let details = sidecar.bearing(&token).get(USER_DETAILS).json();
    let user = payload_of(&token)["userId"].as_str().unwrap().to_owned();
    assert_eq!(details["data"]["id"], format!("m:{user}"));
    server.done(&["revoke", "--user", &user]);
    sidecar.until_revoked(&token);
}

#[test]
fn a_revocation_needs_a_key_pair() {
    let home = tempfile::tempdir().unwrap();
    let store = file_store(home.path());
    for of in ["--user", "--app", "--jti"] {
        let end = Program::AuthServer.run(&["revoke", "--store", &store, of, "a"]);
        end.says(69, "holds no key pair yet");
        assert_eq!(end.stderr.lines().count(), 1, "{of}: {}", end.stderr);
    }
}

#[test]
fn open_streams_end_with_the_revocation_and_downloads_do_not() {
    let server = AuthServerPlan::polling().ready();
    let service = StreamingService::start();
    let sidecar = SidecarPlan::to(&service.url(), &server.url())
        .flags(ECDSA)
        .flags(EVERY_SECOND)
        .ready();
    until_fetched(&sidecar);
    let (token, other) = (server.login(), server.login());
    let open = |path: &str, token: &str, more: &str| {
        let mut client = RawClient::connect(sidecar.address());
        client.send(&head_with_token("GET", path, token, more));
        client
    };
    let mut events = open("/orders/events", &token, "Accept: text/event-stream\r\n");
    let mut unannounced = open("/orders/events", &token, "");
    let mut stays = open("/orders/events", &other, "Accept: text/event-stream\r\n");
    for stream in [&mut events, &mut unannounced, &mut stays] {
        let text = stream.text_until("data: first");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    }
    let mut websocket = open("/orders/websocket", &token, HANDSHAKE);
    assert_eq!(websocket.response("GET").status(), 101);
    let mut download = open("/orders/download", &token, "");
    assert_eq!(server.log_out(&token).status(), 200);
    assert!(events.is_at_end());
    assert!(unannounced.is_at_end());
    assert!(websocket.is_at_end());
    wait::until("the ended streams to be counted", || {
        let ended = sidecar.metric("postern_sidecar_streams_expired_total");
        ended == Some(3)
    });
    let lines = sidecar.process().stderr();
    assert!(!lines.contains("has expired"), "{lines}");
    service.go_on();
    assert_eq!(download.response("GET").body, b"halfmore");
}
