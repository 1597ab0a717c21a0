//! The signed list: its fetch, its age, its copies, its contents.

use super::*;

const LOG: &str = "{auth:user-token}:log:revocations";

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
    strict.until_logged("revocation lists are fetched again");
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
        // The list counts from its fetch: its signature may be ten minutes old.
        let required = ["--revocations", "required", "--max-revocation-age", "50"];
        SidecarPlan::polling(&service, &server.url())
            .flags(["--key-cache", cache])
            .flags(required)
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
fn a_sidecar_without_lists_reports_it() {
    let server = AuthServerPlan::polling().ready();
    let service = EchoService::start();
    let token = server.login();
    assert_eq!(server.log_out(&token).status(), 200);
    let off = SidecarPlan::polling(&service, &server.url()).flags(["--revocations", "off"]);
    let off = off.ready();
    allowed(&off.bearing(&token));
    let line = format!("Authorization: Bearer {token}");
    let explained = off.explain(&["/orders/list"], &[&line]).stdout;
    has(&explained, "– revocation     not checked: no list");
    assert_eq!(off.metric("postern_sidecar_revocations"), None);
    // A server that publishes no list.
    let key = server.served_key();
    let other = tests::services::fake_auth_server::FakeAuthServer::serving(&key);
    let usual = SidecarPlan::polling(&service, &other.url()).ready();
    allowed(&usual.bearing(&token));
    usual.until_logged("publishes no revocation list");
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
    let known = format!("1.{digest}");
    let other = known.replacen('1', "2", 1);
    for (after, rest) in [
        (known.as_str(), ""),
        (&other, lines),
        ("", lines),
        ("x", lines),
        ("0.x", lines),
        ("1.x", lines),
    ] {
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
