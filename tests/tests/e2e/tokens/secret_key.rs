//! The public key (contract §2.6, §4.3) and the clients that may have it.

use tests::actors::applications::{register, remove_last};
use tests::actors::auth_server::{AuthServer, AuthServerPlan, SECRET_KEY};
use tests::actors::file_store;
use tests::actors::sidecar::SidecarPlan;
use tests::services::echo_service::EchoService;

#[test]
fn contract_4_3_rule_1_and_2_6_the_key_is_one_public_string() {
    let server = AuthServer::start();
    let response = server.anonymous().get(SECRET_KEY);
    let envelope = response.json();
    assert_eq!(response.status(), 200);
    assert_eq!(envelope["msg"], "operation succeeded");
    let key = envelope["data"].as_str().unwrap();
    assert!(key.starts_with("-----BEGIN PUBLIC KEY-----\n"), "{key}");
    assert!(
        key.trim_end().ends_with("-----END PUBLIC KEY-----"),
        "{key}"
    );
    assert!(!response.text().contains("PRIVATE"));
    let private = file_store::value(&server.home().join("data"), file_store::PRIVATE).unwrap();
    assert!(private.starts_with("-----BEGIN PRIVATE KEY-----"));
}

/// As the keys of a Secret hold it that was made of a file.
#[test]
fn a_line_end_behind_the_pair_in_variables_is_not_sent() {
    let service = EchoService::start();
    let auth_server = tests::services::fake_auth_server::FakeAuthServer::serving("not a key");
    let url = auth_server.url();
    let plan = SidecarPlan::of_issuer(&service, ["--auth-server", &url]);
    let pair = [
        ("POSTERN_APP_ID", "orders\n"),
        ("POSTERN_APP_SECRET", "hush\r\n"),
    ];
    let _sidecar = plan.environments(&pair).start();
    let request = tests::wait::until("the retrieval", || {
        auth_server.retrievals().into_iter().next()
    });
    let target = String::from_utf8(request.target()).unwrap();
    assert!(target.ends_with("?appId=orders&appSecret=hush"), "{target}");
}

#[test]
fn a_registered_application_is_checked_and_others_rejected() {
    let server = AuthServerPlan::new()
        .flags(["--store-poll-interval", "1"])
        .ready();
    let secret = register(&server, "orders");
    let key = |id: &str, secret: &str| {
        server.anonymous().verdict(&format!(
            "/client/user/secret/key?appId={id}&appSecret={secret}"
        ))
    };
    tests::wait::until("the running server to know the application", || {
        key("orders", "wrong") == "401 application_unknown"
    });
    assert_eq!(key("orders", &secret), "200");
    for (id, wrong) in [
        ("orders", ""),
        ("orders", "wrong"),
        ("billing", secret.as_str()),
        ("Orders", &secret),
        ("orders", &secret[1..]),
    ] {
        assert_ne!(key(id, wrong), "200", "{id} {wrong}");
    }
    assert!(!server.process().output().contains(&secret));
}

#[test]
fn removing_the_last_application_opens_the_key_and_is_said() {
    let server = AuthServerPlan::new()
        .flags(["--store-poll-interval", "1"])
        .ready();
    let registered = |count: u64| {
        let applications = server.metric("postern_auth_server_registered_applications");
        (applications == Some(count)).then_some(())
    };
    let warnings = || server.until_logged("no application is registered");
    registered(0).unwrap();
    assert_eq!(warnings(), 1);
    register(&server, "orders");
    tests::wait::until("the application to count", || registered(1));
    remove_last(&server, "orders");
    tests::wait::until("the application to be gone", || registered(0));
    tests::wait::until("the warning", || warnings() == 2);
    assert_eq!(server.anonymous().status(SECRET_KEY), 200);
}
