//! Configuration that changes while the sidecar runs: applied and rejected changes. Below traffic:
//! `make bench-soak`.

use std::fs;

use serde_json::json;
use tests::actors::auth_server::{ECDSA, admin_get};
use tests::actors::expect::has;
use tests::actors::sidecar::{EVERY_SECOND, SidecarPlan};
use tests::actors::stack::ForgedStack;
use tests::actors::token_forge::Forge;
use tests::keys::{SigningKey, SigningType};
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::FakeAuthServer;
use tests::services::tls_service::TlsService;
use tests::wait;
use tests::wire::certificates::{Authority, write_private};
use tests::wire::clock;
use tests::wire::tls::Trust;

use crate::e2e::service::upstreams::LONG_CONNECT;

fn open(stack: &ForgedStack, path: &str) -> String {
    stack.sidecar.anonymous().verdict(path)
}

#[test]
fn a_changed_file_takes_effect_by_itself() {
    let stack = ForgedStack::configured("public-path = [\"/first/**\"]");
    assert_eq!(open(&stack, "/first/a"), "200");
    assert_eq!(open(&stack, "/second/a"), "401 token_missing");
    stack
        .sidecar
        .replace_config("public-path = [\"/second/**\"]");
    wait::until("the new pass list", || open(&stack, "/second/a") == "200");
    assert_eq!(open(&stack, "/first/a"), "401 token_missing");
    let page = admin_get(stack.sidecar.admin(), "/").text();
    has(&page, "public-path = [\"/second/**\"]");
    stack.sidecar.until_logged("configuration reloaded");
}

#[test]
fn a_signal_without_a_change_has_the_key_file_read() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("key.pem");
    let key = || SigningKey::generate(SigningType::Ecdsa).served();
    fs::write(&file, key()).unwrap();
    let service = EchoService::start();
    let flags = [
        "--jwks",
        file.to_str().unwrap(),
        "--issuer=i",
        "--audience=a",
        "--refresh-cron=0 0 0 29 2 *",
    ];
    let sidecar = SidecarPlan::of_issuer(&service, flags).ready();
    let says = |line: &str| {
        sidecar.process().signal("HUP");
        wait::until(line, || sidecar.process().stderr().contains(line));
    };
    fs::write(&file, "half a k").unwrap();
    says("verification key not fetched; keeping the last good one");
    sidecar.until_logged("configuration applied again: no setting has changed");
    sidecar.until_logged("key.pem cannot be used");
    fs::write(&file, key()).unwrap();
    says("verification key replaced");
}

#[test]
fn every_rule_of_requests_takes_effect_at_a_signal() {
    let stack = ForgedStack::configured("");
    let sidecar = &stack.sidecar;
    let client = sidecar.bearing(&stack.token());
    assert_eq!(client.status("/a"), 200);
    stack.sidecar.reload(
        "user-header = \"X-User\"\nforward-authorization = false\noptional-auth-path = [\"/feed\"]\n\
         cors-origin = [\"https://app.example\"]\ntoken-cookie = \"session\"",
        "applied",
    );
    assert_eq!(client.status("/a"), 200);
    let seen = stack.service.last_request();
    assert_eq!(seen.header("x-user").len(), 1);
    assert_eq!(seen.header("x-current-user").len(), 0);
    assert_eq!(seen.header("authorization").len(), 0);
    assert_eq!(open(&stack, "/feed"), "200");
    let anonymous = sidecar.anonymous();
    let from_page = anonymous
        .request("GET", "/a")
        .line("Origin: https://app.example");
    let response = anonymous.send(&from_page);
    assert_eq!(
        response.header("access-control-allow-origin"),
        ["https://app.example"]
    );
    let cookie = format!("Cookie: session={}", stack.token());
    let with_cookie = anonymous.request("GET", "/a").line(cookie);
    assert_eq!(anonymous.send(&with_cookie).status(), 200);
    // The explanation uses the new configuration as well.
    let explained = sidecar.explain::<&str>(&["--expect=passed", "/orders/feed"], &[]);
    assert_eq!(explained.code, Some(0), "{}", explained.stdout);
}

#[test]
fn a_bad_configuration_is_rejected_and_the_previous_stays() {
    let stack = ForgedStack::configured("public-path = [\"/open/**\"]");
    let sidecar = &stack.sidecar;
    let other = "public-path = [\"/other/**\"]";
    let with = |line: &str| format!("{other}\n{line}");
    let tls = "tls-cert = \"/nowhere\"\ntls-key = \"/nowhere\"";
    for (config, named) in [
        ("public-path = [\"open/**\"]".to_owned(), "--public-path"),
        (with("no-such-setting = 1"), "no-such-setting"),
        (with("upstream-ca = \"/nowhere\""), "upstream"),
        (other.trim_end_matches(']').to_owned(), "line 1"),
        (with(tls), "/nowhere"),
    ] {
        let lines = sidecar.process().output().lines().count();
        stack.sidecar.reload(&config, "rejected");
        assert_eq!(open(&stack, "/open/a"), "200", "{config}");
        assert_eq!(open(&stack, "/other/a"), "401 token_missing", "{config}");
        let said = wait::until("the error line", || {
            let output = sidecar.process().output();
            let mut new = output.lines().skip(lines);
            new.find(|line| line.contains("keeping the previous one"))
                .map(ToOwned::to_owned)
        });
        assert!(said.contains(named), "{config}: {said}");
        let found = sidecar.metric("postern_sidecar_config_last_reload_successful");
        assert_eq!(found, Some(0));
    }
    fs::remove_file(stack.sidecar.config()).unwrap();
    sidecar.process().signal("HUP");
    stack
        .sidecar
        .reload("public-path = [\"/other/**\"]", "applied");
    assert_eq!(open(&stack, "/other/a"), "200");
    assert_eq!(
        sidecar.metric("postern_sidecar_config_last_reload_successful"),
        Some(1)
    );
}

#[test]
fn what_cannot_change_waits_for_the_next_start_by_name() {
    let stack = ForgedStack::configured("");
    let needs_restart = || {
        let metric = "postern_sidecar_config_restart_needed";
        stack.sidecar.metric(metric) == Some(1)
    };
    assert!(!needs_restart());
    let config = "public-path = [\"/open/**\"]\nthreads = 2\naccess-log = \"all\"";
    stack.sidecar.reload(config, "applied");
    wait::until("the need of a restart", needs_restart);
    assert_eq!(open(&stack, "/open/a"), "200");
    let process = stack.sidecar.process();
    has(
        process.line_with("take effect at the next start"),
        "settings=\"threads\"",
    );
    process.line_with("path=/orders/open/a");
    stack
        .sidecar
        .reload("public-path = [\"/open/**\"]", "applied");
    wait::until("no need of a restart", || !needs_restart());
}

#[test]
fn a_token_that_was_verified_before_is_held_to_the_new_policy() {
    let stack = ForgedStack::configured("issuer = \"auth\"");
    let claims = json!({"aud": ["orders", "shop"]});
    let token = stack.forge.token(clock::now(), &claims);
    let of_token = || stack.sidecar.bearing(&token).verdict("/a");
    let hits = || {
        let metric = "postern_sidecar_token_cache_hits_total";
        stack.sidecar.metric(metric).unwrap()
    };
    assert_eq!([of_token(), of_token()], ["200", "200"]);
    assert_eq!(hits(), 1);
    // A change without token settings keeps the verified tokens in the cache.
    stack
        .sidecar
        .reload("issuer = \"auth\"\npublic-path = [\"/open/**\"]", "applied");
    assert_eq!(of_token(), "200");
    assert_eq!(hits(), 2);
    for (config, expected) in [
        ("issuer = \"elsewhere\"", "401 token_issuer"),
        ("issuer = \"auth\"", "200"),
        (
            "issuer = \"auth\"\naudience = \"stock\"",
            "401 token_audience",
        ),
        ("audience = [\"stock\", \"shop\"]", "200"),
        ("audience = [\"stock\"]", "401 token_audience"),
        ("audience = \"shop\"", "200"),
    ] {
        stack.sidecar.reload(config, "applied");
        assert_eq!(of_token(), expected, "{config}");
    }
}

#[test]
fn another_application_secret_is_sent_at_the_next_fetch() {
    let forge = Forge::new(SigningType::Ecdsa);
    let (service, auth_server) = (
        EchoService::start(),
        FakeAuthServer::serving(&forge.trusted().served()),
    );
    let home = tempfile::tempdir().unwrap();
    let secret = home.path().join("secret");
    write_private(&secret, "first");
    let url = auth_server.url();
    let _sidecar = SidecarPlan::of_issuer(
        &service,
        [
            "--auth-server",
            &url,
            "--app-id=orders",
            "--app-secret-file",
        ],
    )
    .flags([secret.to_str().unwrap()])
    .flags(ECDSA)
    .flags(EVERY_SECOND)
    .ready();
    let presented = |secret: &str| {
        let presented = format!("appSecret={secret}");
        let target = |request: &tests::wire::message::Message| {
            String::from_utf8_lossy(&request.target()).into_owned()
        };
        auth_server
            .retrievals()
            .last()
            .is_some_and(|request| target(request).contains(&presented))
    };
    assert!(presented("first"));
    write_private(&secret, "second");
    wait::until("the new secret", || presented("second"));
}

#[test]
fn the_service_is_reached_with_the_certificates_of_the_moment() {
    let stack = ForgedStack::start();
    let (services, clients) = (Authority::new(), Authority::new());
    let service = TlsService::start(&services.issue("server"), Some(&clients.file()));
    let home = tempfile::tempdir().unwrap();
    let ca = home.path().join("ca.crt");
    fs::copy(Authority::new().file(), &ca).unwrap();
    let untrusted_authority = Authority::new();
    let untrusted = untrusted_authority.issue("client");
    let text = |path: &std::path::Path| path.display().to_string();
    let sidecar = SidecarPlan::to(&service.url("localhost"), &stack.auth_server.url())
        .flags(ECDSA)
        .flags(["--upstream-ca", &text(&ca), LONG_CONNECT])
        .flags(["--upstream-client-cert", &text(&untrusted.cert)])
        .flags(["--upstream-client-key", &text(&untrusted.key)])
        .ready();
    let client = sidecar.bearing(&stack.token());
    assert_eq!(client.status("/a"), 502, "an unknown authority");
    let known = clients.issue("client");
    fs::copy(services.file(), &ca).unwrap();
    fs::copy(&known.cert, &untrusted.cert).unwrap();
    write_private(&untrusted.key, &fs::read_to_string(&known.key).unwrap());
    sidecar.process().signal("HUP");
    wait::until("the new certificates", || client.status("/a") == 200);
    // A half-written file changes nothing.
    fs::write(&ca, "-----BEGIN CERT").unwrap();
    sidecar.process().signal("HUP");
    wait::until("the rejection", || sidecar.reloads("rejected") > 0);
    assert_eq!(client.status("/a"), 200);
    // An expired certificate replaces no other.
    fs::copy(services.file(), &ca).unwrap();
    let expired = clients.issue_expired_client();
    fs::copy(&expired.cert, &untrusted.cert).unwrap();
    write_private(&untrusted.key, &fs::read_to_string(&expired.key).unwrap());
    let reloads = sidecar.reloads("rejected");
    sidecar.process().signal("HUP");
    wait::until("the rejection", || sidecar.reloads("rejected") > reloads);
    assert_eq!(client.status("/a"), 200);
    let page = admin_get(sidecar.admin(), "/").text();
    let mut rows = page.lines();
    let row = rows.find(|row| row.starts_with("configuration ")).unwrap();
    assert!(row.contains("reload rejected at 20"), "{page}");
    assert!(row.contains("the certificate has expired"), "{page}");
    fs::copy(&known.cert, &untrusted.cert).unwrap();
    write_private(&untrusted.key, &fs::read_to_string(&known.key).unwrap());
    // The sidecar does not reuse a kept connection of the former authority.
    fs::copy(Authority::new().file(), &ca).unwrap();
    sidecar.process().signal("HUP");
    wait::until("the other authority", || client.status("/a") == 502);
}

#[test]
fn a_file_that_was_missing_counts_once_it_is_there() {
    let stack = ForgedStack::start();
    let authority = Authority::new();
    let service = TlsService::start(&authority.issue("server"), None);
    let home = tempfile::tempdir().unwrap();
    let ca = home.path().join("ca.crt");
    let sidecar = SidecarPlan::to(&service.url("localhost"), &stack.auth_server.url())
        .flags(ECDSA)
        .flags(["--upstream-server-name", "localhost", LONG_CONNECT])
        .config("")
        .ready();
    let client = sidecar.bearing(&stack.token());
    sidecar.replace_config(&format!("upstream-ca = {ca:?}"));
    wait::until("the rejection", || sidecar.reloads("rejected") > 0);
    assert_eq!(client.status("/a"), 502, "an unknown authority");
    fs::copy(authority.file(), &ca).unwrap();
    wait::until("the authority", || client.status("/a") == 200);
}

#[test]
fn clients_need_the_present_authorities_and_stay_connected() {
    let stack = ForgedStack::start();
    let (servers, old, new) = (Authority::new(), Authority::new(), Authority::new());
    let home = tempfile::tempdir().unwrap();
    let ca = home.path().join("clients.crt");
    fs::copy(old.file(), &ca).unwrap();
    let tls = servers.issue("server").flags();
    let sidecar = SidecarPlan::new(&stack.service, &stack.auth_server.url())
        .flags(ECDSA)
        .flags(&tls)
        .flags(["--client-ca", ca.to_str().unwrap()])
        .ready();
    let request = format!(
        "GET /orders/a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n",
        stack.token()
    );
    let of = |authority: &Authority| servers.client().with_identity(&authority.issue("client"));
    let is_let_in = |trust: &Trust| {
        trust.connect(sidecar.address()).is_ok_and(|mut client| {
            let closing = request.replacen("Host", "Connection: close\r\nHost", 1);
            client.send(closing.as_bytes());
            client
                .rest()
                .is_ok_and(|response| response.starts_with(b"HTTP/1.1 200"))
        })
    };
    let (of_old, of_new) = (of(&old), of(&new));
    assert!(is_let_in(&of_old) && !is_let_in(&of_new));
    let mut connected = of_old.connect(sidecar.address()).unwrap();
    connected.send(request.as_bytes());
    assert_eq!(connected.response("GET").status(), 200);
    fs::copy(new.file(), &ca).unwrap();
    sidecar.process().signal("HUP");
    wait::until("the new authority", || is_let_in(&of_new));
    assert!(!is_let_in(&of_old), "not with its earlier ticket either");
    connected.send(request.as_bytes());
    assert_eq!(connected.response("GET").status(), 200);
}

#[test]
fn the_cache_of_keys_follows_the_issuer() {
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join("keys.json");
    let flags = ["--key-cache", cache.to_str().unwrap()];
    let stack = ForgedStack::with(|plan| {
        let plan = plan.config("issuer = \"auth\"");
        plan.flags(flags).flags(EVERY_SECOND)
    });
    let scope = || {
        let text = fs::read_to_string(&cache).ok()?;
        let content: serde_json::Value = serde_json::from_str(&text).ok()?;
        content["origin"]["sha256"].as_str().map(ToOwned::to_owned)
    };
    let of_auth = wait::until("the cache", scope);
    stack.sidecar.reload("issuer = \"elsewhere\"", "applied");
    wait::until("the other issuer", || {
        scope().filter(|scope| *scope != of_auth)
    });
    let token = stack
        .forge
        .token(clock::now(), &json!({"iss": "elsewhere"}));
    assert_eq!(stack.sidecar.bearing(&token).status("/a"), 200);
}
