//! Proofs: each row of the table, and what a client gets for them.

use http::HeaderValue;
use serde_json::json;
use tests::actors::auth_server::{AuthServerPlan, LOGIN, TOKEN_REVOKED, USER_DETAILS, credentials};
use tests::actors::client::Request;
use tests::actors::proving_client::ProvingClient;
use tests::actors::sidecar::SidecarPlan;
use tests::actors::stack::ForgedStack;
use tests::actors::token_forge::{Forge, jti_of, payload_of};
use tests::keys::{Algorithm, Family};
use tests::proof_rows::{ProofRow, ProofTable};
use tests::services::echo_service::EchoService;
use tests::tables::Verdicts;
use tests::wait;
use tests::wire::clock;
use tests::wire::h2_client::H2Client;
use tests::wire::raw_client::{COMPLETION, HANDSHAKE, exchange};

use super::{PATH, Proving, RESOURCE, URL, get};

pub(super) const ALGORITHMS: &str = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA";

/// Sends the proof of a row over HTTP/1.1 or HTTP/2.
fn verdict(proving: &Proving, client: &ProvingClient, token: &str, row: &ProofRow) -> [String; 2] {
    let field = |client: &ProvingClient| client.field(row, "GET", URL, token);
    let line = [&b"DPoP: "[..], &field(client)].concat();
    let authorization = format!("DPoP {token}");
    let request = Request::new("GET", PATH).line(format!("Authorization: {authorization}"));
    let over_1 = proving.stack.sidecar.anonymous().send(&request.line(line));
    // The same key, and so the same `jti`: only a proof that was not used counts again.
    let over_2 = H2Client::connect(proving.stack.sidecar.address());
    let mut request = over_2.request("GET", PATH, &[("authorization", &authorization)]);
    let value = HeaderValue::from_bytes(&field(client)).unwrap();
    request.headers_mut().insert("dpop", value);
    let over_2 = over_2.send(request, b"").unwrap();
    [over_1.verdict(), over_2.verdict()]
}

#[test]
fn rfc_9449_4_3_the_table_of_proofs_over_both_versions_of_http() {
    let mut verdicts = Verdicts::default();
    let proving = Proving::start(&[]);
    for algorithm in Algorithm::VERIFIED {
        if algorithm.family() == Family::Hmac {
            continue;
        }
        let client = ProvingClient::new(algorithm);
        let claims = json!({"cnf": client.cnf()});
        let token = proving.stack.forge.token(clock::now(), &claims);
        for row in ProofTable::load().unwrap().proof {
            // An RSA key fits `RS256`.
            if algorithm.family() == Family::Rsa
                && row.name == "an algorithm of another kind of key"
            {
                continue;
            }
            let found = verdict(&proving, &client, &token, &row);
            let expected = match row.expect.as_str() {
                "accepted" => ["200", "401 proof_replayed"],
                rejected => [rejected; 2],
            };
            let differs = (found != expected).then(|| format!("{found:?}, not {expected:?}"));
            verdicts.row(&format!("{}: {}", algorithm.name(), row.name), differs);
        }
    }
    verdicts.conclude();
    let seen = proving.stack.service.requests();
    let accepted = ProofTable::load().unwrap().proof;
    let accepted = accepted.iter().filter(|row| row.expect == "accepted");
    assert_eq!(seen.len(), 9 * accepted.count());
}

#[test]
fn a_service_gets_a_token_with_its_proof_or_neither() {
    for (mode, are_forwarded) in [("on", true), ("off", false)] {
        let proving = Proving::start(&["--forward-authorization", mode]);
        let lines = proving.lines();
        assert_eq!(proving.get(&lines).verdict(), "200");
        let seen = proving.stack.service.last_request().header_lines();
        for line in &lines {
            assert_eq!(seen.contains(line), are_forwarded, "{seen:?}");
        }
        let is_named = seen
            .iter()
            .any(|line| line.to_ascii_lowercase().starts_with("dpop"));
        assert_eq!(is_named, are_forwarded, "{seen:?}");
    }
}

#[test]
fn rfc_9449_4_3_item_1_a_request_has_one_field_and_counts_once() {
    let proving = Proving::start(&[]);
    let [token, proof] = proving.lines();
    let bearer = format!("Authorization: Bearer {}", proving.stack.token());
    for (lines, verdict) in [
        (vec![token.clone()], "401 proof_missing"),
        (
            vec![token.clone(), "DPoP:".to_owned()],
            "401 proof_malformed",
        ),
        (
            vec![token.clone(), proof.clone(), proof.clone()],
            "400 proof_repeated",
        ),
        (
            vec![token.clone(), proof.clone(), "DPOP: x".to_owned()],
            "400 proof_repeated",
        ),
        (
            vec![token.clone(), proof.clone(), "DPoP:".to_owned()],
            "400 proof_repeated",
        ),
        (
            vec![bearer.clone(), proof.clone(), proof.clone()],
            "400 proof_repeated",
        ),
        (vec![proof.clone(), proof.clone()], "400 proof_repeated"),
        (vec![bearer, proof.clone()], "200"),
        (
            vec![token.clone(), proof.replace("DPoP:", "DPoP_:")],
            "401 proof_missing",
        ),
        (vec![token.clone(), proof.clone()], "200"),
        (vec![token.clone(), proof.clone()], "401 proof_replayed"),
        (
            vec![token.replace("DPoP", "dpop"), proof],
            "401 proof_replayed",
        ),
    ] {
        assert_eq!(proving.get(&lines).verdict(), verdict, "{lines:?}");
    }
    let [token, proof] = proving.lines();
    let value = |line: &str| line.split_once(": ").unwrap().1.to_owned();
    let http_2 = H2Client::connect(proving.stack.sidecar.address());
    let (token, proof) = (value(&token), value(&proof));
    let fields = [("authorization", &*token), ("dpop", &proof), ("dpop", "x")];
    let repeated = http_2.send(http_2.request("GET", PATH, &fields), b"");
    assert_eq!(repeated.unwrap().verdict(), "400 proof_repeated");
    let sent = http_2.request("GET", PATH, &fields[..2]);
    let same: Vec<_> = [sent.clone(), sent.clone(), sent]
        .map(|head| (head, Vec::new()))
        .into();
    let mut verdicts: Vec<_> = http_2
        .send_all(same)
        .into_iter()
        .map(|it| it.unwrap().verdict())
        .collect();
    verdicts.sort();
    assert_eq!(
        verdicts,
        ["200", "401 proof_replayed", "401 proof_replayed"]
    );
    // At the current-user endpoint as well, and of each method its own.
    let url = format!("https://api.example/orders{USER_DETAILS}");
    let details = format!("/orders{USER_DETAILS}");
    let lines = proving.client.lines("GET", &url, &proving.token);
    let body = get(&proving.stack.sidecar, &details, &lines).json();
    assert_eq!(body["data"]["account"], "alice");
    let again = get(&proving.stack.sidecar, &details, &lines);
    assert_eq!(again.verdict(), "401 proof_replayed");
    let lines = proving.client.lines("POST", URL, &proving.token);
    let post = Request::new("POST", PATH).lines(&lines).body("x");
    let client = proving.stack.sidecar.anonymous();
    assert_eq!(client.send(&post).verdict(), "200");
    let lines = proving.client.lines("POST", URL, &proving.token);
    assert_eq!(proving.get(&lines).verdict(), "401 proof_method");
}

#[test]
fn rfc_9449_11_1_a_proof_counts_once_over_a_reload() {
    let config = "resource = 'https://api.example/orders'\n";
    let proving = Proving::of(ForgedStack::configured(config), Algorithm::ES256);
    let lines = proving.lines();
    assert_eq!(proving.get(&lines).verdict(), "200");
    let changed = format!("{config}leeway = 20\n");
    proving.stack.sidecar.reload(&changed, "applied");
    assert_eq!(proving.get(&lines).verdict(), "401 proof_replayed");
    assert_eq!(proving.get(&proving.lines()).verdict(), "200");
    // Without a resource no proof can be verified.
    proving.stack.sidecar.reload("leeway = 20\n", "applied");
    let rejected = proving.get(&proving.lines());
    assert_eq!(rejected.verdict(), "401 authorization_scheme");
    assert_eq!(rejected.header("www-authenticate").len(), 1);
}

#[test]
fn a_bad_proof_is_a_bad_token_where_tokens_are_optional() {
    let until = format!("--report-until={}", clock::now() + 3600);
    let optional = Proving::start(&["--optional-auth-path", "/**"]);
    let reporting = Proving::start(&["--enforce=report", &until]);
    for proving in [&optional, &reporting] {
        assert_eq!(proving.get(&[]).verdict(), "200");
        assert_eq!(proving.get(&proving.lines()).verdict(), "200");
    }
    let bad = |proving: &Proving| {
        let lines = ProvingClient::new(Algorithm::ES256).lines("GET", URL, &proving.token);
        proving.get(&lines).verdict()
    };
    assert_eq!(bad(&optional), "401 proof_key_other");
    assert_eq!(bad(&reporting), "200");
    let seen = reporting.stack.service.last_request();
    assert_eq!(seen.header("postern-would-reject"), ["proof_key_other"]);
    assert_eq!(seen.header("x-current-user"), [""; 0]);
}

#[test]
fn a_websocket_is_opened_with_a_proof() {
    let proving = Proving::start(&["--websocket-token", "on"]);
    proving
        .stack
        .service
        .responds(format!("HTTP/1.1 101 Switching Protocols\r\n{}\r\n", COMPLETION).into_bytes());
    let open = |lines: &str| {
        let head = format!("GET {PATH} HTTP/1.1\r\nHost: a\r\n{HANDSHAKE}{lines}\r\n");
        exchange(proving.stack.sidecar.address(), "GET", head.as_bytes())
    };
    let lines = proving.lines().map(|line| line + "\r\n").concat();
    assert_eq!(open(&lines).status(), 101);
    assert_eq!(open(&lines).verdict(), "401 proof_replayed");
    let [_, proof] = proving.lines();
    let of_page = format!(
        "Sec-WebSocket-Protocol: bearer, {}\r\n{proof}\r\n",
        proving.token
    );
    assert_eq!(open(&of_page).verdict(), "401 token_bound");
}

#[test]
fn each_issuer_has_its_own_rule_for_proofs() {
    let forge = Forge::new(Algorithm::ES256);
    let service = EchoService::start();
    let home = tempfile::tempdir().unwrap();
    let keys = home.path().join("keys.pem");
    std::fs::write(&keys, forge.trusted().served()).unwrap();
    let table = |name: &str, dpop: &str| {
        format!(
            "[[issuer]]\nname = '{name}'\nissuer = 'https://{name}'\naudience = ['a']\njwks = '{}'\n\
             user-prefix = '{name}:'\n{dpop}\n",
            keys.display()
        )
    };
    let config = [
        ("plain", ""),
        ("allowed", "dpop = 'allowed'"),
        ("required", "dpop = 'required'"),
    ];
    let config = config.map(|(name, dpop)| table(name, dpop)).concat();
    let plan = SidecarPlan::of_issuer(&service, RESOURCE).config(&config);
    let sidecar = plan.with_all_keys();
    for (name, plain) in [
        ("plain", "200"),
        ("allowed", "200"),
        ("required", "401 proof_missing"),
    ] {
        let claims = json!({"iss": format!("https://{name}"), "aud": "a"});
        let unbound = forge.token(clock::now(), &claims);
        assert_eq!(sidecar.verdict_of(&unbound), plain, "{name}");
    }
}

#[test]
fn a_token_of_our_login_is_bound_and_ends_with_its_revocation() {
    let server = AuthServerPlan::polling().ready();
    let service = EchoService::start();
    let plan = SidecarPlan::polling(&service, &server.url()).flags(RESOURCE);
    let sidecar = plan.ready();
    let client = ProvingClient::new(Algorithm::ES256);
    let url = server.url() + LOGIN;
    let proof = client.proof("POST", &url, "", &json!({"ath": null}));
    let login = server
        .anonymous()
        .request("POST", LOGIN)
        .json(&credentials());
    let response = server
        .anonymous()
        .send(&login.line(format!("DPoP: {proof}")))
        .json();
    let token = response["data"]["access_token"].as_str().unwrap();
    assert_eq!(payload_of(token)["cnf"], client.cnf());
    assert_eq!(sidecar.verdict_of(token), "401 token_bound");
    let verdict = || get(&sidecar, PATH, &client.lines("GET", URL, token)).verdict();
    assert_eq!(verdict(), "200");
    server.done(&["revoke", "--jti", &jti_of(token)]);
    wait::until("the revocation", || verdict() == TOKEN_REVOKED);
}
