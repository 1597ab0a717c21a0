//! The service registry (contract §1, §4.3 rule 4): the auth server registers, sidecars find it
//! there. The registry is the real server program `rnacos`, which has the API of Nacos 1 and 2; for
//! Nacos 3 it is a server of the harness.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use tests::actors::auth_server::{AuthServer, AuthServerPlan, USER_DETAILS};
use tests::actors::sidecar::{EVERY_SECOND, NEVER, Sidecar, SidecarPlan};
use tests::actors::token_forge::Forge;
use tests::keys::SigningType;
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::FakeAuthServer;
use tests::services::nacos_3::{self, Nacos3};
use tests::services::redis_server::Redis;
use tests::services::rnacos_server::{PASSWORD, Rnacos, SERVICE, USER};
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::wait;
use tests::wire::certificates::{Authority, write_private};
use tests::wire::clock;

/// A stop that takes longer than any test.
const LONG_STOP: [&str; 2] = ["--lame-duck", "300"];
const RSA: SigningType = SigningType::Rsa;

/// Returns a server on a loopback port of its own, with the address to advertise.
fn registering(url: &str) -> AuthServerPlan {
    AuthServerPlan::new().flags(["--registry", url, "--advertise", "127.0.0.1"])
}

fn finding(service: &EchoService, registry: &Rnacos) -> SidecarPlan {
    SidecarPlan::new(service, &registry.auth_server_url()).flags(EVERY_SECOND)
}

fn says_registered(server: &AuthServer) -> bool {
    server.metric("postern_auth_server_registry_listed") == Some(1)
}

fn fetches(sidecar: &Sidecar, outcome: &str) -> u64 {
    let name = format!("postern_sidecar_key_refreshes_total{{outcome=\"{outcome}\"}}");
    sidecar.metric(&name).unwrap_or_default()
}

/// Waits for `times` further fetches of the sidecar.
fn fetches_again(sidecar: &Sidecar, times: u64) {
    let before = fetches(sidecar, "unchanged");
    wait::until("more fetches of the key", || {
        fetches(sidecar, "unchanged") >= before + times
    });
}

/// Returns the instances in the sidecar's last log line about them.
fn known_to(sidecar: &Sidecar) -> Option<String> {
    let output = sidecar.process().stderr();
    let lines = output.lines().rev();
    lines
        .filter(|line| line.contains("instances of the auth server"))
        .find_map(|line| line.split('"').nth(1).map(str::to_owned))
}

fn knows(sidecar: &Sidecar, instances: &str) {
    wait::until(&format!("the sidecar to know `{instances}`"), || {
        known_to(sidecar).as_deref() == Some(instances)
    });
}

#[test]
fn contract_1_the_server_is_registered_as_auth_until_it_stops() {
    let Some(registry) = Rnacos::start() else {
        return;
    };
    let server = registering(&registry.url()).flags(LONG_STOP).ready();
    registry.lists(&[server.address()]);
    let entry = registry.hosts(SERVICE).remove(0);
    assert_eq!(entry["ephemeral"], true);
    assert_eq!(entry["metadata"]["context-path"], "/auth");
    assert_eq!(entry["metadata"]["secure"], "false");
    assert_eq!(entry["metadata"]["version"], env!("CARGO_PKG_VERSION"));
    wait::until("the metric", || says_registered(&server));

    server.process().terminate();
    registry.lists(&[]);
    wait::until("the end of readiness", || server.readiness() == 503);
    assert!(!server.login().is_empty(), "it goes on serving");
    server.until_logged("server_deregistered");
    assert!(!says_registered(&server));
}

#[test]
fn a_server_with_tls_is_registered_as_secure() {
    let Some(registry) = Rnacos::start() else {
        return;
    };
    let authority = Authority::new();
    let server = registering(&registry.url())
        .tls(&authority, &authority.issue("auth"))
        .ready();
    registry.lists(&[server.address()]);
    assert_eq!(registry.hosts(SERVICE)[0]["metadata"]["secure"], "true");
    let service = EchoService::start();
    let url = secure_instances(&registry, "localhost");
    let sidecar = SidecarPlan::new(&service, &url)
        .flags(["--auth-ca", &text(&authority.file())])
        .ready();
    let response = sidecar.bearing(&server.login()).get("/orders/1");
    assert_eq!(response.status(), 200);
}

#[test]
fn contract_1_a_stop_does_not_wait_for_an_absent_registry() {
    let Some(mut registry) = Rnacos::start() else {
        return;
    };
    let server = registering(&registry.url())
        .flags(["--lame-duck", "0"])
        .ready();
    registry.lists(&[server.address()]);
    registry.kill();
    server.process().terminate();
    let finished = server.into_process().finished();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
}

#[test]
fn contract_1_registration_can_be_switched_off() {
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    registry.set_nonblocking(true).unwrap();
    let url = format!("nacos://{}", registry.local_addr().unwrap());
    let server = AuthServerPlan::new()
        .environment("POSTERN_REGISTRY", &url)
        .flags(["--registry", "none"])
        .ready();
    assert!(!server.login().is_empty());
    assert!(!says_registered(&server));
    assert_eq!(registry.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_registry_down_at_the_start_holds_up_no_program() {
    let Some(mut registry) = Rnacos::not_running() else {
        return;
    };
    let service = EchoService::start();
    let server = registering(&registry.url()).ready();
    let sidecar = finding(&service, &registry).start();
    let token = server.login();
    let response = sidecar.bearing(&token).get("/orders/1");
    assert_eq!(response.status(), 503);
    assert_eq!(response.reason(), "auth_keys_unavailable");
    assert_eq!(sidecar.anonymous().status("/orders/1"), 401);

    registry.run();
    registry.lists(&[server.address()]);
    let sidecar = sidecar.ready();
    assert_eq!(sidecar.bearing(&token).status("/orders/1"), 200);
}

#[test]
fn a_restarted_registry_lists_the_server_again() {
    let Some(mut registry) = Rnacos::start() else {
        return;
    };
    let service = EchoService::start();
    let server = registering(&registry.url()).ready();
    registry.lists(&[server.address()]);
    let sidecar = finding(&service, &registry).ready();
    let failed = fetches(&sidecar, "failed");

    registry.kill();
    wait::until("the metric to fall", || !says_registered(&server));
    assert_eq!(server.readiness(), 200);
    fetches_again(&sidecar, 3);

    registry.run();
    registry.lists(&[server.address()]);
    let entry = registry.hosts(SERVICE).remove(0);
    assert_eq!(entry["metadata"]["context-path"], "/auth", "whole again");
    wait::until("the metric to rise", || says_registered(&server));
    fetches_again(&sidecar, 3);
    assert_eq!(fetches(&sidecar, "failed"), failed);
    assert_eq!(known_to(&sidecar), Some(server.address().to_string()));
}

#[test]
fn contract_8_each_tick_tries_another_instance() {
    let Some(registry) = Rnacos::start() else {
        return;
    };
    let forge = Forge::new(RSA);
    let key = forge.trusted().served();
    let servers: Vec<_> = (0..3).map(|_| FakeAuthServer::serving(&key)).collect();
    for (server, settings) in servers
        .iter()
        .zip(["&weight=1", "&weight=2", "&enabled=false"])
    {
        registry.add(server.address(), settings);
    }
    registry.lists(&[servers[0].address(), servers[1].address()]);
    let service = EchoService::start();
    let sidecar = finding(&service, &registry).ready();
    wait::until("two fetches from each instance", || {
        let fetched = |server: &FakeAuthServer| server.retrievals().len() >= 2;
        servers[..2].iter().all(fetched)
    });
    let counts: Vec<_> = servers
        .iter()
        .map(|server| server.retrievals().len())
        .collect();
    assert!(
        counts[0].abs_diff(counts[1]) <= 1,
        "they alternate: {counts:?}"
    );
    assert_eq!(counts[2], 0, "switched off");

    // A failed fetch is not repeated within the tick (0 retries), but the next tick uses the other
    // one.
    registry.remove(servers[0].address());
    knows(&sidecar, &servers[1].address().to_string());
    // One may have begun with the former list.
    fetches_again(&sidecar, 1);
    let before = servers[0].retrievals().len();
    fetches_again(&sidecar, 3);
    assert_eq!(servers[0].retrievals().len(), before, "gone with the list");
    let token = forge.token(clock::now(), &serde_json::Value::Null);
    assert_eq!(sidecar.bearing(&token).status("/orders/1"), 200);
}

#[test]
fn an_instance_that_is_killed_is_gone_from_the_list_of_sidecars() {
    let (Some(registry), Some(redis)) = (Rnacos::start_with_short_expiry(), Redis::start()) else {
        return;
    };
    let start = || registering(&registry.url()).store(redis.url()).ready();
    let (one, other) = (start(), start());
    registry.lists(&[one.address(), other.address()]);
    let service = EchoService::start();
    let sidecar = finding(&service, &registry).ready();
    let mut both = [one.address().to_string(), other.address().to_string()];
    both.sort();
    knows(&sidecar, &both.join(" "));

    let token = one.login();
    one.process().signal("KILL");
    registry.lists(&[other.address()]);
    knows(&sidecar, &other.address().to_string());
    fetches_again(&sidecar, 3);
    assert_eq!(sidecar.bearing(&token).status("/orders/1"), 200);
    assert_eq!(other.logged_in().status(USER_DETAILS), 200);
}

#[test]
fn a_registry_that_needs_a_login_gets_one_unlogged() {
    let Some(registry) = Rnacos::start_with_login() else {
        return;
    };
    let address = registry.address();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("password");
    let password = text(&file);
    let url = format!("nacos://{USER}@{address}?password-file={password}");
    write_private(&file, "wrong-hush");
    let rejected = registering(&url).ready();
    rejected.until_logged("the registry rejects the login: 403");
    assert_eq!(registry.listed(), Vec::<String>::new());
    assert!(!says_registered(&rejected));
    assert!(!rejected.process().output().contains("wrong-hush"));
    assert_eq!(rejected.logged_in().status(USER_DETAILS), 200);
    drop(rejected);

    write_private(&file, PASSWORD);
    let loud = ["--log-level", "trace,hyper_util=trace,reqwest=trace"];
    let server = registering(&url).flags(loud).ready();
    registry.lists(&[server.address()]);
    let service = EchoService::start();
    let url = format!("nacos://{USER}@{address}/auth?password-file={password}");
    let sidecar = SidecarPlan::new(&service, &url)
        .flags(EVERY_SECOND)
        .flags(loud)
        .ready();
    knows(&sidecar, &server.address().to_string());
    assert_eq!(sidecar.bearing(&server.login()).status("/orders/1"), 200);

    for output in [server.process().output(), sidecar.process().output()] {
        for secret in [PASSWORD, "hu%2Fsh%40registry", "Bearer "] {
            assert!(!output.contains(secret), "{output}");
        }
    }
}

#[test]
fn over_https_the_certificate_decides_and_not_the_registry() {
    let Some(registry) = Rnacos::start() else {
        return;
    };
    let (authority, untrusted) = (Authority::new(), Authority::new());
    let forge = Forge::new(SigningType::Ecdsa);
    let serving = |authority: &Authority, forge: &Forge| {
        let tls = authority.issue_server(&["auth.internal"]).serving(None);
        FakeAuthServer::serving_tls(tls, &forge.trusted().served())
    };
    let good = serving(&authority, &forge);
    let evil = serving(&untrusted, &Forge::new(SigningType::Ecdsa));
    registry.add(good.address(), "");
    registry.add(evil.address(), "");

    let service = EchoService::start();
    let url = secure_instances(&registry, "auth.internal");
    let sidecar = SidecarPlan::new(&service, &url)
        .flags(EVERY_SECOND)
        .flags([
            "--signing-type",
            "ecdsa",
            "--auth-ca",
            &text(&authority.file()),
        ])
        .ready();
    wait::until("a fetch from each", || {
        let failed = fetches(&sidecar, "failed") > 0;
        failed && !good.retrievals().is_empty()
    });
    assert_eq!(evil.retrievals().len(), 0, "it gets no secret");
    let port = good.address().port();
    let found = good.retrievals()[0].header("host");
    assert_eq!(found, [format!("auth.internal:{port}")]);
    let token = forge.token(clock::now(), &serde_json::Value::Null);
    assert_eq!(sidecar.bearing(&token).status("/orders/1"), 200);
    assert!(!sidecar.process().stderr().contains("plain HTTP"));
}

#[test]
fn a_registry_that_is_not_trusted_is_named_with_its_setting() {
    let (authority, other) = (Authority::new(), Authority::new());
    let tls = authority.issue("registry").serving(None);
    let registry = SocketServer::start_tls(tls, |_| Reply::Silence);
    let (address, ca) = (registry.address(), other.file());
    let url = format!("nacos://{address}/auth?registry-tls=on&ca={}", ca.display());
    let service = EchoService::start();
    let sidecar = SidecarPlan::new(&service, &url).flags(NEVER).start();
    sidecar.until_logged("not trusted; `ca` in its URL names a file");
}

#[test]
fn nacos_3_over_tls_serves_both_programs_and_may_fail() {
    let authority = Authority::new();
    let registry = Nacos3::start(&authority);
    let (address, ca) = (registry.address(), authority.file());
    let ca = ca.display();
    let home = tempfile::tempdir().unwrap();
    let password = home.path().join("password");
    write_private(&password, nacos_3::PASSWORD);
    let (user, files) = (
        nacos_3::USER,
        format!("password-file={}&ca={ca}", text(&password)),
    );
    let server = registering(&format!("nacos+https://{user}@{address}/team-a?{files}")).ready();
    wait::until("the registration", || registry.registered());
    let service = EchoService::start();
    let url = format!("nacos://{user}@{address}/auth?namespace=team-a&registry-tls=on&{files}");
    let sidecar = SidecarPlan::new(&service, &url).flags(EVERY_SECOND).ready();
    registry.drop_instance();
    let form = wait::until("a second registration", || registry.registered());
    assert!(
        form.contains("namespaceId=team-a") && form.contains("context-path"),
        "{form}"
    );

    let token = server.login();
    let garbage = response("200 OK", &[], b"{\"code\":0,\"data\":\"\x1b[31m\"}");
    for bad_reply in [
        Reply::Bytes(garbage),
        Reply::BytesThenClose(Vec::new()),
        Reply::Silence,
    ] {
        registry.misbehave(bad_reply);
        wait::until("requests of both programs", || {
            let requests = registry.requests();
            let is = |method: &'static str| requests.iter().any(|sent| sent.method() == method);
            is("POST") && is("GET")
        });
        fetches_again(&sidecar, 2);
        assert_eq!(sidecar.bearing(&token).status("/orders/1"), 200);
        assert_eq!(server.readiness(), 200);
    }
    for output in [server.process().output(), sidecar.process().output()] {
        assert!(
            !output.contains("hush") && !output.contains('\x1b'),
            "{output}"
        );
    }
}

/// Returns the URL of instances with TLS in a registry without.
fn secure_instances(registry: &Rnacos, server_name: &str) -> String {
    let address = registry.address();
    format!("nacos+https://{address}/auth?registry-tls=off&server-name={server_name}")
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
