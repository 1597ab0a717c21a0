//! The sidecar's key: how the sidecar fetches, keeps and replaces it (contract §1, §4.3, §5.3, §7,
//! §8).

use serde_json::Value;
use tests::actors::auth_server::{
    AuthServer, AuthServerPlan, ECDSA, SECRET_KEY, USER_DETAILS, admin_get,
};
use tests::actors::expect::has;
use tests::actors::sidecar::{EVERY_SECOND, NEVER, Sidecar, SidecarPlan};
use tests::actors::stack::ForgedStack;
use tests::actors::token_forge::Forge;
use tests::keys::SigningType;
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::{FakeAuthServer, json_response, key_response};
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::wait;
use tests::wire::clock;
use tests::wire::free_address::free_address;
use tests::wire::message::Message;
use tests::wire::moved_clock::MovedClock;

#[test]
fn contract_7_an_auth_server_down_at_start_is_tried_each_tick() {
    let forge = Forge::new(SigningType::Ecdsa);
    // Without a tick it is tried again as well, each time after a longer pause.
    for (schedule, said) in [
        (EVERY_SECOND, &["ERROR"][..]),
        (
            NEVER,
            &["next try in 1 s", "next try in 2 s", "next try in 4 s"],
        ),
    ] {
        let (address, service) = (free_address(), EchoService::start());
        let plan = SidecarPlan::new(&service, &format!("http://{address}/auth"));
        let sidecar = plan.flags(ECDSA).flags(schedule).start();
        for line in said {
            sidecar.until_logged(line);
        }
        let token = forge.token(clock::now(), &Value::Null);
        let response = sidecar.bearing(&token).get("/list");
        assert_eq!(response.verdict(), "503 auth_keys_unavailable");
        let seconds: u64 = response.header("retry-after")[0].parse().unwrap();
        assert!((1..=11).contains(&seconds), "{seconds}");
        assert_eq!(sidecar.anonymous().verdict("/list"), "401 token_missing");
        let found = sidecar.bearing(&token).verdict(USER_DETAILS);
        assert_eq!(found, "503 auth_keys_unavailable");
        let bearer = format!("Authorization: Bearer {token}");
        let explained = sidecar.explain(&["/list"], &[bearer]);
        has(&explained.stdout, "the last fetch failed: ");
        let _auth_server = FakeAuthServer::serving_on(address, &forge.trusted().served());
        let sidecar = sidecar.ready();
        assert_eq!(sidecar.bearing(&token).status("/list"), 200);
    }
}

#[test]
fn contract_4_4_pass_listed_paths_need_no_key() {
    let (service, nowhere) = (EchoService::start(), free_address());
    let plan = SidecarPlan::new(&service, &format!("http://{nowhere}/auth"));
    let sidecar = plan.public_paths(["/public/**"]).start();
    let client = sidecar.anonymous();
    let request = client.request("GET", "/public/x");
    let response = client.send(&request.line("X-Current-User: {\"id\":\"0\"}"));
    assert_eq!(response.status(), 200);
    assert_eq!(service.last_request().header("X-Current-User"), [""; 0]);
}

#[test]
fn contract_1_a_replaced_key_is_taken_at_the_next_tick() {
    const CACHED: &str = "postern_sidecar_token_cache_bytes";
    let stack = ForgedStack::of(SigningType::Rsa, |plan| plan.flags(EVERY_SECOND));
    let new = stack.forge.untrusted_token(clock::now(), &Value::Null);
    let (old, new) = (
        stack.sidecar.bearing(&stack.token()),
        stack.sidecar.bearing(&new),
    );
    for _ in 0..3 {
        assert_eq!(old.status("/list"), 200);
    }
    assert_eq!(new.verdict("/list"), "401 token_signature");
    assert!(stack.sidecar.metric(CACHED) > Some(0));
    let new_key = stack.forge.untrusted().served();
    stack.auth_server.set_reply(key_response(&new_key));
    let rejected = wait::until("the new key", || {
        let verdict = old.verdict("/list");
        (verdict != "200").then_some(verdict)
    });
    let expected = "401 token_signature";
    assert_eq!(rejected, expected, "contract 5.3: the last fetched");
    assert_eq!(stack.sidecar.metric(CACHED), Some(0), "gone with its key");
    assert_eq!(new.status("/list"), 200);
}

#[test]
fn contract_1_the_hot_path_never_calls_the_auth_server() {
    let service = EchoService::start();
    let auth_server = AuthServer::start();
    let token = auth_server.login();
    let sidecar = SidecarPlan::new(&service, &auth_server.url()).ready();
    drop(auth_server);
    for _ in 0..3 {
        assert_eq!(sidecar.bearing(&token).status("/list"), 200);
    }
    assert_eq!(sidecar.bearing(&token).status(USER_DETAILS), 200);
}

/// The only test with the real minute: the default schedule is the contract's.
#[test]
fn contract_8_the_refresh_is_at_second_0_of_every_minute() {
    let minute = clock::now() / 60;
    let stack = ForgedStack::start();
    let at_start = stack.auth_server.retrievals().len();
    let has_ticked = clock::now() / 60 > minute;
    assert!(at_start == 1 || has_ticked, "one fetch at the start");
    let mut now = clock::now();
    let second = wait::within(std::time::Duration::from_secs(75), || {
        let before = std::mem::replace(&mut now, clock::now());
        (stack.auth_server.retrievals().len() > at_start).then_some(before % 60)
    });
    let second = second.unwrap_or_else(|| panic!("no refresh within a minute"));
    assert!(
        second <= 1 || second >= 58,
        "the refresh came after second {second}"
    );
}

#[test]
fn a_clock_that_is_set_back_holds_up_no_fetch() {
    const HOUR: i64 = 3600;
    // Rounded, one more or less.
    const JUMPED: &str = "clock was set, or the machine slept jump_seconds=-3";
    let Some(clock) = MovedClock::new() else {
        return;
    };
    let stack = ForgedStack::with(|plan| {
        let plan = plan.flags(EVERY_SECOND);
        plan.environments(&clock.environment())
    });
    stack.auth_server.until_fetched(3);
    for back in 1..=2 {
        clock.set(-back * HOUR);
        stack.auth_server.until_fetched(3);
    }
    let noticed = stack.sidecar.process().stderr();
    has(&noticed, "two intervals");
    wait::until("a line for each", || {
        let log = stack.sidecar.process().stderr();
        log.matches(JUMPED).count() == 2
    });
    clock.set(HOUR);
    stack.auth_server.until_fetched(3);
}

#[test]
fn a_clock_that_is_not_the_servers_is_noted_once() {
    const NOTE: &str = " s ahead of this machine's";
    let Some(clock) = MovedClock::new() else {
        return;
    };
    let service = EchoService::start();
    let auth_server = AuthServerPlan::polling().ready();
    let sidecar = SidecarPlan::polling(&service, &auth_server.url())
        .environments(&clock.environment())
        .ready();
    let is_noted = || admin_get(sidecar.admin(), "/readyz").text().contains(NOTE);
    let ahead = || sidecar.metric("postern_sidecar_clock_ahead_seconds");
    assert!(!is_noted());
    for times in 1..=2 {
        clock.set(-600);
        wait::until("the note", is_noted);
        assert!((599..=602).contains(&ahead().unwrap()), "{:?}", ahead());
        until_fetched_twice(&sidecar);
        let log = sidecar.process().stderr();
        assert_eq!(log.matches("the server's clock is off").count(), times);
        clock.set(0);
        wait::until("the end of the note", || !is_noted());
    }
    sidecar.until_logged("the server's clock is right again");
}

/// Waits for two more fetches.
fn until_fetched_twice(sidecar: &Sidecar) {
    let series = "postern_sidecar_key_refreshes_total{outcome=\"unchanged\"}";
    let before = sidecar.metric(series);
    wait::until("two fetches", || {
        sidecar.metric(series) > before.map(|count| count + 1)
    });
}

#[test]
fn contract_8_a_fetch_is_one_try() {
    let away = json_response("503 Service Unavailable", "{\"success\":false}");
    let auth_server = FakeAuthServer::replying(away);
    let service = EchoService::start();
    let sidecar = SidecarPlan::new(&service, &auth_server.url())
        .flags(NEVER)
        .start();
    let failures = || {
        let log = sidecar.process().stderr();
        log.matches("not fetched; next").count()
    };
    wait::until("some failed fetches", || failures() > 2);
    for _ in 0..20 {
        assert_eq!(sidecar.verdict_of("a.b.c"), "503 auth_keys_unavailable");
    }
    let tries = auth_server.retrievals().len();
    // One may be under way.
    assert!(
        tries <= failures() + 1,
        "retries on the same and the next instance: 0 / 0"
    );
}

#[test]
fn contract_5_3_a_key_without_pem_armour_is_read() {
    let forge = Forge::new(SigningType::Rsa);
    let bare: String = forge
        .trusted()
        .served()
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let (auth_server, service) = (FakeAuthServer::serving(&bare), EchoService::start());
    let sidecar = SidecarPlan::new(&service, &auth_server.url()).ready();
    let token = forge.token(clock::now(), &Value::Null);
    assert_eq!(sidecar.bearing(&token).status("/list"), 200);
}

#[test]
fn keys_that_cannot_be_fetched_are_trusted_for_a_while() {
    let forge = Forge::new(SigningType::Ecdsa);
    let (address, service) = (free_address(), EchoService::start());
    let auth_server = FakeAuthServer::serving_on(address, &forge.trusted().served());
    let sidecar = SidecarPlan::polling(&service, &auth_server.url())
        .flags(["--max-key-age", "3"])
        .public_paths(["/public/**"])
        .ready();
    let token = forge.token(clock::now(), &Value::Null);
    let client = sidecar.bearing(&token);
    assert_eq!(client.status("/list"), 200);
    drop(auth_server);
    wait::until("the failed fetch on the page", || {
        let page = admin_get(sidecar.admin(), "/").text();
        let mut lines = page.lines();
        let line = lines.find(|line| line.starts_with("verification_key"))?;
        let parts = [
            " warn ",
            "the fetches fail since 20",
            "refused",
            "the keys count until 20",
        ];
        parts.iter().all(|part| line.contains(part)).then_some(())
    });
    wait::until("the keys to be too old", || {
        let verdict = client.verdict("/list");
        assert!(
            ["200", "503 auth_keys_stale"].contains(&&*verdict),
            "{verdict}"
        );
        verdict != "200"
    });
    wait::until("readiness to fall", || sidecar.readiness() == 503);
    assert_eq!(client.status("/public/x"), 200);
    assert_eq!(sidecar.anonymous().verdict("/list"), "401 token_missing");
    let _again = FakeAuthServer::serving_on(address, &forge.trusted().served());
    let sidecar = sidecar.ready();
    assert_eq!(sidecar.bearing(&token).status("/list"), 200);
}

/// Serves the keys of `auth_server`, and counts the connections.
fn counting(auth_server: &AuthServer) -> SocketServer {
    let set = auth_server.anonymous().get("/.well-known/jwks.json").body;
    let key = auth_server.anonymous().get(SECRET_KEY).body;
    SocketServer::start(move |request: &Message| {
        let link = "Link: </auth/.well-known/jwks.json>; rel=\"jwks\"";
        let is_set_request = request.target().ends_with(b"jwks.json");
        let body = if is_set_request { &set } else { &key };
        Reply::Bytes(response("200 OK", &[link], body))
    })
}

#[test]
fn both_requests_of_a_fetch_share_one_connection() {
    let (service, auth_server) = (EchoService::start(), AuthServer::start());
    let counting = counting(&auth_server);
    let sidecar = SidecarPlan::new(&service, &format!("http://{}/auth", counting.address()))
        .flags(["--refresh-cron", "0 0 0 1 1 *"])
        .ready();
    let requests = counting.requests();
    assert_eq!(requests.len(), 2, "the key and the key set");
    assert_eq!(requests[1].header("connection"), ["close"]);
    wait::until("the connection to be closed", || {
        counting.connections() == (1, 0)
    });
    drop(sidecar);

    // The next fetch opens a connection of its own.
    let _sidecar = SidecarPlan::new(&service, &format!("http://{}/auth", counting.address()))
        .flags(EVERY_SECOND)
        .ready();
    wait::until("two more fetches", || counting.requests().len() >= 6);
    wait::until("a connection for each", || {
        let (requests, (made, _)) = (counting.requests().len(), counting.connections());
        requests == 2 * made
    });
}

#[test]
fn a_connection_without_further_requests_is_closed() {
    let (forge, service) = (Forge::new(SigningType::Ecdsa), EchoService::start());
    let key = forge.trusted().served();
    let nameless = SocketServer::start(move |_: &Message| key_response(&key));
    let _sidecar = SidecarPlan::new(&service, &format!("http://{}/auth", nameless.address()))
        .flags(ECDSA)
        .flags(["--refresh-cron", "0 0 0 1 1 *"])
        .ready();
    wait::until("the connection to be closed", || {
        nameless.connections() == (1, 0)
    });
}
