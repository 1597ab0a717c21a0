//! Challenges, CORS, metadata and `explain`: how a sidecar announces proofs to clients.

use serde_json::{Value, json};
use tests::actors::auth_server::USER_DETAILS;
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::proving_client::ProvingClient;
use tests::actors::stack::ForgedStack;
use tests::keys::Algorithm;

use super::nonces::{key_file, path_in};
use super::proofs::ALGORITHMS;
use super::{PATH, Proving, RESOURCE, URL, send};

#[test]
fn rfc_9449_7_1_challenges_name_both_schemes_bearer_first() {
    let config =
        "resource = 'https://api.example/orders'\n[[rule]]\npaths = ['/**']\nscope = ['use']\n";
    let proving = Proving::of(ForgedStack::configured(config), Algorithm::ES256);
    let unbound = proving.stack.token();
    let of_other = ProvingClient::new(Algorithm::ES256).lines("GET", URL, &proving.token);
    let bearer = |token: &str| vec![format!("Authorization: Bearer {token}")];
    let metadata =
        "resource_metadata=\"https://api.example/.well-known/oauth-protected-resource/orders\"";
    for (lines, verdict, error) in [
        (vec![], "401 token_missing", None),
        (bearer("x"), "401 token_malformed", Some("invalid_token")),
        (
            bearer(&proving.token),
            "401 token_bound",
            Some("invalid_token"),
        ),
        (
            bearer(&unbound),
            "403 insufficient_scope",
            Some("insufficient_scope"),
        ),
        (
            proving.client.lines("GET", URL, &unbound).to_vec(),
            "401 token_bound",
            Some("invalid_token"),
        ),
        (
            vec![format!("Authorization: DPoP {}", proving.token)],
            "401 proof_missing",
            Some("invalid_dpop_proof"),
        ),
        (
            of_other.to_vec(),
            "401 proof_key_other",
            Some("invalid_dpop_proof"),
        ),
        (
            proving.lines().to_vec(),
            "403 insufficient_scope",
            Some("insufficient_scope"),
        ),
    ] {
        let response = proving.get(&lines);
        assert_eq!(response.verdict(), verdict);
        let challenges = response.header("www-authenticate");
        let [bearer, dpop] = &challenges[..] else {
            panic!("{verdict}: {challenges:?}");
        };
        let parameters = bearer.strip_prefix("Bearer ").unwrap();
        let expected = format!("DPoP algs=\"{ALGORITHMS}\", {parameters}");
        assert_eq!(*dpop, expected);
        let error = error.map(|error| format!("error=\"{error}\""));
        assert_eq!(
            parameters.contains("error="),
            error.is_some(),
            "{parameters}"
        );
        has(parameters, error.as_deref().unwrap_or_default());
        has(parameters, metadata);
        has(parameters, "scope=\"use\"");
    }
}

#[test]
fn cors_names_the_fields_of_proofs() {
    const ORIGIN: &str = "https://app.example";
    let secret = key_file("0123456789abcdef0123456789abcdef");
    let key_file = path_in(&secret).display().to_string();
    let proving = Proving::start(&["--cors-origin", ORIGIN, "--dpop-nonce-key-file", &key_file]);
    let target = format!("/orders{USER_DETAILS}");
    let preflight = Request::new("OPTIONS", target.as_str()).lines([
        "Origin: https://app.example",
        "Access-Control-Request-Method: GET",
        "Access-Control-Request-Headers: authorization,dpop",
    ]);
    let response = send(&proving.stack.sidecar, &preflight, "OPTIONS");
    assert_eq!(response.status(), 204);
    let allowed = response.header("Access-Control-Allow-Headers").concat();
    assert_eq!(allowed, "authorization,dpop");
    let request = Request::new("GET", PATH).lines(proving.lines());
    let response = send(
        &proving.stack.sidecar,
        &request.line(format!("Origin: {ORIGIN}")),
        "GET",
    );
    assert_eq!(response.verdict(), "401 proof_nonce");
    assert_eq!(response.header("dpop-nonce").len(), 1);
    let exposed = response.header("Access-Control-Expose-Headers").concat();
    has(exposed, "DPoP-Nonce");
    // Of a forwarded response as well, where an allowed origin gets a nonce.
    let nonce = json!({"nonce": response.header("dpop-nonce")[0]});
    let bearer = || vec![format!("Authorization: Bearer {}", proving.stack.token())];
    let proven = || {
        let lines = proving
            .client
            .lines_with("GET", URL, &proving.token, &nonce);
        lines.to_vec()
    };
    for (lines, origin, exposed) in [
        (proven(), ORIGIN, &["DPoP-Nonce"][..]),
        (proven(), "https://other.example", &[]),
        (bearer(), ORIGIN, &[]),
    ] {
        let request = Request::new("GET", PATH).lines(lines);
        let request = request.line(format!("Origin: {origin}"));
        let response = send(&proving.stack.sidecar, &request, "GET");
        assert_eq!(response.verdict(), "200");
        let found = response.header("Access-Control-Expose-Headers");
        assert_eq!(found, exposed, "{origin}");
    }
}

#[test]
fn metadata_name_the_proofs_and_certificates_that_are_accepted() {
    let document = |flags: &[&str]| {
        let stack = ForgedStack::with_flags([&RESOURCE, flags].concat());
        let request = Request::new("GET", "/.well-known/oauth-protected-resource/orders");
        let document = send(&stack.sidecar, &request, "GET").json();
        let members = [
            "dpop_signing_alg_values_supported",
            "dpop_bound_access_tokens_required",
            "tls_client_certificate_bound_access_tokens",
        ];
        members.map(|name| document[name].clone())
    };
    let algorithms = json!(ALGORITHMS.split(' ').collect::<Vec<_>>());
    let (none, yes) = (Value::Null, json!(true));
    assert_eq!(
        document(&[]),
        [algorithms.clone(), none.clone(), none.clone()]
    );
    assert_eq!(
        document(&["--accept-bound-tokens", "on"]),
        [none.clone(), none.clone(), none.clone()]
    );
    let header = [
        "--client-cert-header=Client-Cert",
        "--trusted-proxy=10.0.0.1",
    ];
    assert_eq!(document(&header), [algorithms, none, yes]);
}

#[test]
fn explain_names_what_a_proof_says() {
    let proving = Proving::start(&[]);
    let explained = |lines: &[String]| {
        let end = proving.stack.sidecar.explain(&[PATH], lines);
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        end.stdout
    };
    let other_url = "https://other.example/orders/1";
    let lines = proving.client.lines("GET", other_url, &proving.token);
    let output = explained(&lines);
    has(&output, "proof_target");
    has(&output, other_url);
    let [token, _] = proving.lines();
    has(explained(std::slice::from_ref(&token)), "proof_missing");
    has(
        explained(&[token, "DPoP: a.b".to_owned()]),
        "proof_malformed",
    );
    // An explanation uses no proof up.
    let lines = proving.lines();
    for _ in 0..2 {
        assert!(!explained(&lines).contains("proof_"));
    }
    assert_eq!(proving.get(&lines).verdict(), "200");
}
