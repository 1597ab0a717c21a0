//! The three signing types (contract §2.4, §5.4), each through both programs.

use tests::actors::applications::register_in;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, USER_DETAILS, file_store};
use tests::actors::expect::has;
use tests::actors::sidecar::SidecarPlan;
use tests::actors::stack::signing_flags;
use tests::actors::token_forge::header_of;
use tests::keys::SigningType;
use tests::services::echo_service::EchoService;

/// Starts an auth server of this type, and returns the secret of its application `orders`.
fn auth_server(signing_type: SigningType, directory: &tempfile::TempDir) -> (AuthServer, String) {
    let secret = register_in(&file_store(directory.path()), "orders");
    let plan = AuthServerPlan::new()
        .directory(directory.path())
        .flags(["--signing-type", signing_type.name()]);
    (plan.ready(), secret)
}

#[test]
fn contract_2_4_and_5_4_each_type_through_both_programs() {
    SigningType::ALL.into_iter().for_each(proves);
}

fn proves(signing_type: SigningType) {
    let directory = tempfile::tempdir().unwrap();
    let (server, secret) = auth_server(signing_type, &directory);
    let service = EchoService::start();
    let plan = SidecarPlan::new(&service, &server.url()).application("orders", &secret);
    let sidecar = plan.flags(signing_flags(signing_type)).ready();

    let token = server.login();
    assert_eq!(header_of(&token)["alg"], signing_type.algorithm());
    for client in [server.anonymous(), sidecar.anonymous()] {
        let response = client.bearing(&token).get(USER_DETAILS);
        assert_eq!(response.status(), 200, "{}", response.text());
    }
    assert_eq!(sidecar.bearing(&token).status("/list"), 200);
    assert_eq!(service.last_request().header("X-Current-User").len(), 1);
}

#[test]
fn contract_5_4_a_sidecar_of_another_type_trusts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (server, secret) = auth_server(SigningType::Ecdsa, &directory);
    let service = EchoService::start();
    let sidecar = SidecarPlan::new(&service, &server.url())
        .application("orders", &secret)
        .start();
    sidecar.until_logged("the key is of type ecdsa, but --signing-type is rsa");
    let response = sidecar.bearing(&server.login()).get("/list");
    assert_eq!(response.verdict(), "503 auth_keys_unavailable");
    assert_eq!(service.requests().len(), 0);
}

#[test]
fn lesson_b15_hmac_needs_a_registered_application() {
    let end = AuthServerPlan::new().flags(["--signing-type=hmac"]).fails();
    end.says(78, "application");
    has(end.stderr.lines().last().unwrap(), "hmac");
}

#[test]
fn lesson_b15_the_shared_secret_is_for_its_application_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (server, secret) = auth_server(SigningType::Hmac, &directory);
    let key = |secret: &str| {
        let target = format!("/client/user/secret/key?appId=orders&appSecret={secret}");
        server.anonymous().get(&target)
    };
    let shared = key(&secret).json()["data"].as_str().unwrap().to_owned();
    assert!(shared.len() >= 43, "32 random bytes in base64url");
    for wrong in ["", "wrong", &secret[..secret.len() - 1]] {
        let response = key(wrong);
        assert!(response.status() >= 400, "{wrong}");
        assert!(!response.text().contains(&shared), "{wrong}");
    }
}
