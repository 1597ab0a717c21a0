//! Tokens that end before their expiry: revoked by their bearer, by a command, with their user; on
//! one sidecar and on several, through lost stores and old lists.

use std::collections::BTreeSet;
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
fn a_command_ends_a_token_and_all_of_a_user() {
    let server = AuthServerPlan::polling().ready();
    let service = EchoService::start();
    let sidecar = SidecarPlan::polling(&service, &server.url()).ready();
    let (first, second) = (server.login(), server.login());
    server.done(&["revoke", "--jti", &jti_of(&first)]);
    sidecar.until_revoked(&first);
    allowed(&sidecar.bearing(&second));
    let user = payload_of(&second)["sub"].as_str().unwrap().to_owned();
    // Tokens of a later second stay valid.
    server.done(&["revoke", "--user", &user]);
    sidecar.until_revoked(&second);
    wait::until("a login after the revocation", || {
        let token = server.login();
        sidecar.verdict_of(&token) == "200"
    });
    let third = server.login();
    server.done(&["revoke", "--all"]);
    sidecar.until_revoked(&third);
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

const LOG: &str = "{auth:user-token}:log:revocations";

/// Returns the number of different revocations in the store.
fn in_log(redis: &Redis) -> usize {
    let entries = redis.command(&["ZRANGE", LOG, "0", "-1"]);
    let entries = entries.unwrap_or_default();
    let facts = entries.lines().filter_map(|entry| entry.split_once(' '));
    facts.map(|(_, fact)| fact).collect::<BTreeSet<_>>().len()
}

#[test]
fn revocations_on_one_redis_survive_flush_and_backup() {
    let Some(redis) = Redis::start() else { return };
    let start = || AuthServerPlan::polling().store(redis.url()).ready();
    let (one, other) = (start(), start());
    let service = EchoService::start();
    let behind = [
        SidecarPlan::polling(&service, &one.url()).ready(),
        SidecarPlan::polling(&service, &other.url()).ready(),
    ];
    let (first, second) = (one.login(), other.login());
    assert_eq!(one.log_out(&first).status(), 200);
    other.until_revoked(&first);
    assert_eq!(other.log_out(&second).status(), 200);
    one.until_revoked(&second);
    for sidecar in &behind {
        sidecar.until_revoked(&first);
        sidecar.until_revoked(&second);
    }
    let older = ["ZREMRANGEBYRANK", LOG, "1", "1"];
    for lose in [&["FLUSHALL"][..], &older] {
        redis.command(lose);
        wait::until("both revocations in the store", || in_log(&redis) == 2);
    }
    let restored = "postern_auth_server_revocations_restored_total";
    wait::until("three restored ones to be counted", || {
        let counts = [&one, &other].map(|server| server.metric(restored).unwrap_or_default());
        counts.iter().sum::<u64>() >= 3
    });
    drop(one);
    let third = start();
    for server in [&other, &third] {
        for token in [&first, &second] {
            assert_eq!(server.verdict(token), TOKEN_REVOKED);
        }
    }
    for sidecar in &behind {
        assert_eq!(sidecar.verdict_of(&second), TOKEN_REVOKED);
    }
}

/// A logout moves as much beside many revocations as beside none.
#[test]
fn a_logout_beside_25_000_revocations_moves_at_most_24_kib() {
    let Some(redis) = Redis::start() else { return };
    // No poll of the store counts.
    let flags = ["--refresh-tokens", "--store-poll-interval", "3600"];
    let plan = AuthServerPlan::new().flags(ECDSA).flags(flags);
    let server = plan.store(redis.url()).ready();
    let (first, second) = (server.login(), server.login());
    assert_eq!(server.log_out(&first).status(), 200);
    let entry = redis.command(&["ZRANGE", LOG, "0", "0"]).unwrap();
    let (_, entry) = entry.split_once(' ').unwrap();
    let fill = "for id = 2, 25001 do redis.call('ZADD', KEYS[1], id, id .. ' ' .. ARGV[1]) end
        redis.call('SET', KEYS[2], 25001)";
    let counter = "{auth:user-token}:last";
    redis.command(&["EVAL", fill, "2", LOG, counter, entry]);
    // One that is not measured reads them.
    assert_eq!(server.log_out(&server.login()).status(), 200);
    let before = traffic(&redis);
    assert_eq!(server.log_out(&second).status(), 200);
    let bytes = traffic(&redis) - before;
    assert!(bytes <= 24 * 1024, "{bytes}");
    assert_eq!(server.verdict(&second), TOKEN_REVOKED);
}

/// Returns the bytes that Redis has received and sent.
fn traffic(redis: &Redis) -> u64 {
    let stats = redis.command(&["INFO", "stats"]).unwrap();
    let field = |name: &str| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse().unwrap()
    };
    field("total_net_input_bytes:") + field("total_net_output_bytes:")
}

/// Passes requests on to an auth server, except those for the list while an old one is replayed.
fn relay(server: &AuthServer, old: &Arc<AtomicBool>) -> SocketServer {
    let (address, old) = (server.address(), Arc::clone(old));
    let replayed = server.anonymous().get(LIST).body;
    SocketServer::start(move |request| {
        let target = String::from_utf8(request.target()).unwrap();
        if target.contains(LIST) && old.load(Ordering::SeqCst) {
            return Reply::Bytes(response("200 OK", &[], &replayed));
        }
        let line = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let from_server = exchange(address, "GET", line.as_bytes());
        let lines = from_server.header_lines();
        let links = lines
            .iter()
            .filter(|line| line.to_lowercase().starts_with("link:"));
        let links: Vec<&str> = links.map(String::as_str).collect();
        Reply::Bytes(response("200 OK", &links, &from_server.body))
    })
}

#[test]
fn an_old_list_brings_no_token_back_and_is_not_fresh() {
    let server = AuthServerPlan::polling().ready();
    let service = EchoService::start();
    let (first, second) = (server.login(), server.login());
    assert_eq!(server.log_out(&first).status(), 200);
    let is_old = Arc::new(AtomicBool::new(false));
    let relay = relay(&server, &is_old);
    assert_eq!(server.log_out(&second).status(), 200);
    let url = format!("http://{}/auth", relay.address());
    let required = ["--revocations", "required", "--max-revocation-age", "3"];
    let strict = SidecarPlan::polling(&service, &url).flags(required).ready();
    let usual = SidecarPlan::polling(&service, &url).ready();
    for sidecar in [&strict, &usual] {
        sidecar.until_revoked(&second);
    }
    is_old.store(true, Ordering::SeqCst);
    let token = server.login();
    wait::until("the required list to be stale", || {
        let response = strict.bearing(&token).get("/list");
        (response.verdict() == "503 revocations_stale").then_some(response)
    });
    wait::until("the stale list to be reported", || {
        strict.readiness() == 503
    });
    has(strict.process().line_with("below"), "auth-server revoke");
    let log = strict.process().stderr();
    let found = log.matches("revocation list not fetched").count();
    assert_eq!(found, 1, "{log}");
    assert!(!usual.process().stderr().contains("not fetched"));
    let older = "postern_sidecar_revocation_refreshes_total{outcome=\"older\"}";
    assert_ne!(usual.metric(older), Some(0));
    assert_eq!(usual.bearing(&second).verdict("/list"), TOKEN_REVOKED);
    assert_eq!(usual.bearing(&first).verdict("/list"), TOKEN_REVOKED);
    allowed(&usual.bearing(&token));
    is_old.store(false, Ordering::SeqCst);
    wait::until("the list to be fresh again", || strict.readiness() == 200);
    allowed(&strict.bearing(&token));
}

#[test]
fn a_restarted_sidecar_knows_the_list_from_its_key_cache() {
    let server = AuthServerPlan::polling().ready();
    let service = EchoService::start();
    let (token, other) = (server.login(), server.login());
    assert_eq!(server.log_out(&token).status(), 200);
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join("keys.json");
    let plan = || {
        let cache = cache.to_str().unwrap();
        SidecarPlan::polling(&service, &server.url()).flags(["--key-cache", cache])
    };
    let first = plan().ready();
    first.until_revoked(&token);
    wait::until("the cached keys and their list", || {
        let text = std::fs::read_to_string(&cache).unwrap_or_default();
        text.contains("\\ntoken ")
    });
    drop(first);
    let plan = plan();
    server.process().signal("STOP");
    let restarted = plan.ready();
    assert_eq!(restarted.bearing(&token).verdict("/list"), TOKEN_REVOKED);
    allowed(&restarted.bearing(&other));
    server.process().signal("CONT");
}

#[test]
fn a_sidecar_without_lists_reports_it_or_waits() {
    let server = AuthServerPlan::polling().ready();
    let service = EchoService::start();
    let token = server.login();
    assert_eq!(server.log_out(&token).status(), 200);
    let off = SidecarPlan::polling(&service, &server.url()).flags(["--revocations", "off"]);
    let off = off.ready();
    allowed(&off.bearing(&token));
    assert_eq!(off.metric("postern_sidecar_revocations"), None);
    // A server that publishes no list.
    let key = server.served_key();
    let other = tests::services::fake_auth_server::FakeAuthServer::serving(&key);
    let usual = SidecarPlan::polling(&service, &other.url()).ready();
    allowed(&usual.bearing(&token));
    usual.until_logged("publishes no revocation list");
    let needs = SidecarPlan::polling(&service, &other.url()).flags(["--revocations", "required"]);
    let needs = needs.start();
    wait::until("the missing list to be reported", || {
        let seen = needs.bearing(&token).verdict("/list");
        seen == "503 revocations_stale"
    });
    assert_eq!(needs.readiness(), 503);
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

#[test]
fn the_published_list_is_signed_and_names_no_user() {
    let server = AuthServerPlan::polling().ready();
    let token = server.login();
    assert_eq!(server.log_out(&token).status(), 200);
    let response = server.anonymous().get(LIST);
    let list = response.text();
    let (head, lines) = list.split_once('\n').unwrap();
    assert_eq!(header_of(head)["typ"], "postern-revocations+jwt");
    let payload = payload_of(head);
    assert_eq!(payload["count"], 1);
    assert!(lines.starts_with("token ") && !lines.contains(&jti_of(&token)));
    // It is no access token.
    let used = server.anonymous().bearing(head).get(USER_DETAILS);
    assert_eq!(used.verdict(), "401 token_header");
    let client = server.anonymous();
    let digest = payload["digest"].as_str().unwrap();
    for (after, rest) in [(format!("1.{digest}"), ""), (format!("2.{digest}"), lines)] {
        let again = client.get(&format!("{LIST}?after={after}")).text();
        assert_eq!(again, format!("{head}\n{rest}"), "{after}");
    }
    let links = client
        .get(tests::actors::auth_server::SECRET_KEY)
        .header("link");
    let link = "</auth/.well-known/revocations>; rel=\"revocations\"";
    assert!(links.iter().any(|one| one == link), "{links:?}");
    assert_ne!(payload["seq"], Value::from(0));
}
