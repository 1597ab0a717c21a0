//! TLS to the server of the keys (design: the connection carries the application secret and the
//! trust anchor).

use serde_json::Value;
use tests::actors::auth_server::ECDSA;
use tests::actors::expect::has;
use tests::actors::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};
use tests::actors::token_forge::Forge;
use tests::keys::SigningType;
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::FakeAuthServer;
use tests::wait;
use tests::wire::certificates::{Authority, Certificate};
use tests::wire::clock;

fn trusting(authority: &Authority) -> [String; 2] {
    [
        "--auth-ca".to_owned(),
        authority.file().display().to_string(),
    ]
}

fn plan_of(service: &EchoService, url: &str, flags: &[String]) -> SidecarPlan {
    SidecarPlan::new(service, url)
        .flags(ECDSA)
        .flags(EVERY_SECOND)
        .flags(flags)
}

/// Waits until fetches fail because of the certificate, and checks that the sidecar sends no
/// request.
fn rejected_for(sidecar: &Sidecar, auth_server: &FakeAuthServer, why: &str) {
    let failures = || {
        let log = sidecar.process().stderr();
        let failures = log.lines().filter(|line| line.contains("key not fetched"));
        failures.map(str::to_owned).collect::<Vec<_>>()
    };
    let next = || {
        let before = failures().len();
        wait::until("a failed fetch", || {
            failures().get(before..)?.last().map(ToOwned::to_owned)
        })
    };
    // A fetch that was under way may still succeed before this one.
    next();
    let retrievals = auth_server.retrievals().len();
    let line = next();
    assert!(line.contains(why), "{why} in {line}");
    let found = auth_server.retrievals().len();
    assert_eq!(found, retrievals, "no secret was sent");
}

#[test]
fn a_server_of_another_authority_gets_no_secret() {
    let (authority, untrusted) = (Authority::new(), Authority::new());
    let forge = Forge::new(SigningType::Ecdsa);
    let service = EchoService::start();
    let here = |authority: &Authority| authority.issue_server(&["127.0.0.1"]);
    let elsewhere = authority.issue_server(&["auth.internal", "127.0.0.2"]);
    let trusted = trusting(&authority);
    for (certified, flags, why) in [
        (
            here(&untrusted),
            &trusted[..],
            "is not trusted; --auth-ca, or `ca` of the [[issuer]], names",
        ),
        // Without --auth-ca the system's authorities count, and this one is not among them.
        (here(&authority), &[], "certificate"),
        (
            elsewhere,
            &trusted,
            "only valid for auth.internal or 127.0.0.2",
        ),
        // A client certificate does not identify a server.
        (authority.issue_client(), &trusted, "certificate"),
        (
            authority.as_server(),
            &trusted,
            "(CA:TRUE), which no server may present",
        ),
        (authority.issue_expired_server(), &trusted, "has expired"),
    ] {
        let auth_server =
            FakeAuthServer::serving_tls(certified.serving(None), &forge.trusted().served());
        let sidecar = plan_of(&service, &auth_server.url(), flags).start();
        rejected_for(&sidecar, &auth_server, why);
        assert_eq!(sidecar.readiness(), 503);
    }
}

#[test]
fn a_server_without_tls_is_not_spoken_to_plainly() {
    let (authority, forge) = (Authority::new(), Forge::new(SigningType::Ecdsa));
    let auth_server = FakeAuthServer::serving(&forge.trusted().served());
    let service = EchoService::start();
    let url = auth_server.url().replace("http://", "https://");
    let sidecar = plan_of(&service, &url, &trusting(&authority)).start();
    sidecar.until_logged("key not fetched");
    assert_eq!(sidecar.readiness(), 503);
    for request in auth_server.retrievals() {
        assert!(!request.text().contains("appSecret") && request.method() != "GET");
    }
}

#[test]
fn new_certificates_are_followed_without_a_restart() {
    let (authority, forge) = (Authority::new(), Forge::new(SigningType::Ecdsa));
    let successor = Authority::new();
    let tls = authority.issue_server(&["127.0.0.1"]).serving(None);
    let auth_server = FakeAuthServer::serving_tls(tls, &forge.trusted().served());
    let service = EchoService::start();
    let sidecar = plan_of(&service, &auth_server.url(), &trusting(&authority)).ready();

    auth_server.set_tls(successor.issue_server(&["127.0.0.1"]).serving(None));
    rejected_for(&sidecar, &auth_server, "is not trusted");
    // Half a file changes nothing.
    std::fs::write(authority.file(), "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    rejected_for(&sidecar, &auth_server, "is not trusted");
    rejected_for(&sidecar, &auth_server, "is not trusted");
    let log = sidecar.process().stderr();
    let found = log.matches("keeping the previous content").count();
    assert_eq!(found, 1, "{log}");

    std::fs::write(
        authority.file(),
        [authority.pem(), successor.pem()].concat(),
    )
    .unwrap();
    auth_server.until_fetched(1);
    let token = forge.token(clock::now(), &Value::Null);
    assert_eq!(sidecar.bearing(&token).status("/list"), 200);
}

#[test]
fn a_replaced_client_certificate_is_used_and_an_ended_one_warns() {
    let [authority, clients, others] = [(); 3].map(|()| Authority::new());
    let server = authority.issue_server(&["127.0.0.1"]);
    let served = Forge::new(SigningType::Ecdsa).trusted().served();
    let auth_server = FakeAuthServer::serving_tls(server.serving(Some(&clients.file())), &served);
    let home = tempfile::tempdir().unwrap();
    let (cert, key) = (home.path().join("cert"), home.path().join("key"));
    let put = |client: &Certificate| {
        std::fs::copy(&client.cert, &cert).unwrap();
        std::fs::copy(&client.key, &key).unwrap();
    };
    let expired = clients.issue_expired_client();
    let service = EchoService::start();
    let plan = || {
        plan_of(&service, &auth_server.url(), &trusting(&authority))
            .flags(["--auth-client-cert", cert.to_str().unwrap()])
            .flags(["--auth-client-key", key.to_str().unwrap()])
    };

    put(&expired);
    let rejected = plan().start();
    rejected_for(&rejected, &auth_server, "key not fetched");
    let log = rejected.process().output();
    has(&log, "the certificate has expired at 2020-01-01");
    drop(rejected);
    put(&clients.issue_client());
    let sidecar = plan().ready();
    let log = sidecar.process().output();
    assert!(!log.contains("has expired"), "{log}");
    // It warns, and the certificate before goes on.
    put(&expired);
    sidecar.until_logged("the certificate has expired");
    auth_server.until_fetched(1);
    auth_server.set_tls(server.serving(Some(&others.file())));
    rejected_for(&sidecar, &auth_server, "key not fetched");
    put(&others.issue_client());
    auth_server.until_fetched(1);
}

#[test]
fn a_certificate_names_what_is_configured_not_what_dns_says() {
    let (authority, forge) = (Authority::new(), Forge::new(SigningType::Ecdsa));
    let service = EchoService::start();
    for (name, good) in [("localhost", true), ("127.0.0.1", false)] {
        let tls = authority.issue_server(&[name]).serving(None);
        let auth_server = FakeAuthServer::serving_tls(tls, &forge.trusted().served());
        let host = format!("localhost:{}", auth_server.address().port());
        let url = format!("dns+https://{host}/auth");
        let sidecar = plan_of(&service, &url, &trusting(&authority)).start();
        if good {
            let sidecar = sidecar.ready();
            let token = forge.token(clock::now(), &Value::Null);
            assert_eq!(sidecar.bearing(&token).status("/list"), 200);
            assert_eq!(auth_server.retrievals()[0].header("host"), [host]);
        } else {
            rejected_for(&sidecar, &auth_server, "not valid for name");
        }
    }
}

#[test]
fn an_expired_client_certificate_keeps_no_fresh_authority_out() {
    let (former, fresh, clients) = (Authority::new(), Authority::new(), Authority::new());
    let served = |authority: &Authority| authority.issue_server(&["127.0.0.1"]).serving(None);
    let key = Forge::new(SigningType::Ecdsa).trusted().served();
    let auth_server = FakeAuthServer::serving_tls(served(&former), &key);
    let home = tempfile::tempdir().unwrap();
    let ca = home.path().join("ca");
    std::fs::copy(former.file(), &ca).unwrap();
    let expired = clients.issue_expired_client();
    let flags = ["--auth-ca", ca.to_str().unwrap()].map(str::to_owned);
    let service = EchoService::start();
    let sidecar = plan_of(&service, &auth_server.url(), &flags)
        .flags(["--auth-client-cert", expired.cert.to_str().unwrap()])
        .flags(["--auth-client-key", expired.key.to_str().unwrap()])
        .ready();

    auth_server.set_tls(served(&fresh));
    rejected_for(&sidecar, &auth_server, "key not fetched");
    std::fs::copy(fresh.file(), &ca).unwrap();
    auth_server.until_fetched(1);
}
