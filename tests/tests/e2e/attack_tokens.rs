//! `tests/corpus/data/attack_tokens.toml`: every row on the crate `wire`, and through a sidecar.

use http::{HeaderMap, HeaderName, HeaderValue};
use tests::auth_server::{AuthServer, USER_DETAILS};
use tests::client::{Request, verdict};
use tests::clock::within_one_second;
use tests::echo_service::EchoService;
use tests::keys::{Algorithm, SigningKey, SigningType};
use tests::message::Message;
use tests::sidecar::Sidecar;
use tests::stack::ForgedStack;
use tests::tables::Verdicts;
use tests::token_forge::{Forge, encode};
use tests::token_rows::{KeySetShape, Policy, TokenRow, TokenTable};
use wire::keys::algorithms::AsymmetricAlgorithm;
use wire::keys::{KeySet, VerificationKey};
use wire::token::bearer;
use wire::token::verifier::VerificationPolicy;

/// The sidecar's cap of the `Authorization` field.
const AUTHORIZATION_CAP: usize = 16 * 1024;

fn rows() -> Vec<TokenRow> {
    TokenTable::load().unwrap().token
}

#[test]
fn contract_5_the_token_table_at_the_verifier() {
    let mut verdicts = Verdicts::default();
    let mut forge = Forge::new(Algorithm::RS256);
    let mut another = SigningKey::generate(Algorithm::RS256);
    for algorithm in Algorithm::VERIFIED {
        forge = forge.meant_for(algorithm);
        another = another.meant_for(algorithm);
        for row in rows().iter().filter(|row| row.is_tried_with(algorithm)) {
            for shape in row.shapes() {
                let verdict = verdict_of(row, shape, &forge, &verification_key(&another));
                let expected = row.expected(shape);
                let difference =
                    (verdict != expected).then(|| format!("{verdict}, not {expected}"));
                let name = format!("{} ({}, {shape:?})", row.name, algorithm.name());
                verdicts.row(&name, difference);
            }
        }
    }
    assert!(rows().len() >= 200, "the table has lost rows");
    verdicts.conclude();
}

/// Returns the verdict of the crate `wire` as the table writes it. The named key set also has the
/// key `another`.
fn verdict_of(
    row: &TokenRow,
    shape: KeySetShape,
    forge: &Forge,
    another: &VerificationKey,
) -> String {
    let key = verification_key(forge.trusted());
    let kid = key.id().as_str().to_owned();
    let keys = match shape {
        KeySetShape::Nameless => KeySet::nameless(key),
        KeySetShape::Named => KeySet::named(vec![another.clone(), key]),
    };
    let verified = within_one_second(|now| {
        let headers = header_map(&row.header_lines(forge, &kid, now));
        let bearer = bearer::from_headers(&headers, AUTHORIZATION_CAP)?;
        let bearer = bearer.ok_or(wire::rejection::Rejection::TokenMissing)?;
        policy(row.policy).verify_at(&keys, bearer, now)
    });
    match verified {
        Ok(_) => "accepted".to_owned(),
        Err(rejection) => format!("{} {}", rejection.status().as_u16(), rejection.reason()),
    }
}

fn verification_key(key: &SigningKey) -> VerificationKey {
    let text = key.served();
    if key.algorithm() == Algorithm::HS256 {
        let hmac = wire::keys::signing_type::SigningType::Hmac;
        return VerificationKey::parse(hmac, &text).expect("a secret");
    }
    let named: AsymmetricAlgorithm = key.algorithm().name().parse().expect("an algorithm");
    let keys = KeySet::from_pem(&text, &[named.jws()]).expect("a key");
    keys.keys()[0].clone()
}

fn policy(policy: Policy) -> VerificationPolicy {
    VerificationPolicy {
        issuer: (policy == Policy::Issuer).then(|| "auth".to_owned()),
        audiences: match policy {
            Policy::Audience => vec!["orders".to_owned()],
            _ => Vec::new(),
        },
        any_access_token: false,
        leeway_seconds: 30,
        require_expiry: policy != Policy::NoExpiry,
        accept_bound_tokens: policy == Policy::Bound,
        mapping: None,
        extra_claims: Vec::new(),
    }
}

/// Returns the lines as a server's parser does: without blanks around values.
fn header_map(lines: &[Vec<u8>]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let colon = line
            .iter()
            .position(|byte| *byte == b':')
            .expect("a header line");
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        headers.append(
            HeaderName::from_bytes(name).expect("a header name"),
            HeaderValue::from_bytes(value).expect("a header value"),
        );
    }
    headers
}

#[test]
fn contract_5_the_token_table_through_the_sidecar_with_rsa() {
    through_the_sidecar(SigningType::Rsa, &Policy::ALL);
}

#[test]
fn contract_5_the_token_table_through_the_sidecar_with_ecdsa() {
    through_the_sidecar(SigningType::Ecdsa, &[Policy::Default]);
}

#[test]
fn contract_5_the_token_table_through_the_sidecar_with_hmac() {
    through_the_sidecar(SigningType::Hmac, &[Policy::Default]);
}

fn through_the_sidecar(signing_type: SigningType, policies: &[Policy]) {
    let mut verdicts = Verdicts::default();
    for policy in policies {
        let stack = ForgedStack::with(signing_type, |plan| {
            plan.flags(policy.flags().iter().copied())
        });
        let of_this_run = |row: &&TokenRow| {
            row.is_tried_with(signing_type)
                && row.policy == *policy
                && row.keys == KeySetShape::Nameless
        };
        for row in rows().iter().filter(of_this_run) {
            let lines = |now| row.header_lines(&stack.forge, "unnamed", now);
            let observed = observe(&stack.sidecar, &stack.service, row, lines);
            verdicts.row(&row.name, observed.err());
        }
    }
    verdicts.conclude();
}

/// Checks that a rejected request never reaches the service, and an accepted one does, with the
/// user.
fn observe(
    sidecar: &Sidecar,
    service: &EchoService,
    row: &TokenRow,
    lines: impl Fn(i64) -> Vec<Vec<u8>>,
) -> Result<(), String> {
    let (response, seen) = within_one_second(|now| {
        // Drops the requests of an attempt that a new second made worthless.
        service.take_requests();
        (send(sidecar, row, lines(now)), service.take_requests())
    });
    let verdict = verdict(&response);
    let user = |request: &Message| request.header("X-Current-User");
    match row.rejection() {
        None if verdict == "200" && matches!(&seen[..], [one] if user(one).len() == 1) => Ok(()),
        None => Err(format!(
            "{verdict}, not accepted once with its user; the service received {}",
            seen.len()
        )),
        Some(_) if !seen.is_empty() => Err(format!(
            "{verdict}, and the service received {}",
            seen.len()
        )),
        Some((status, _)) => match over_the_wire(&row.expect, &response) {
            expected if verdict != expected => Err(format!("{verdict}, not {expected}")),
            _ => challenge(status, &response),
        },
    }
}

/// Returns the rejection to expect: the max size of the whole head applies before the field's.
fn over_the_wire<'r>(expected: &'r str, response: &Message) -> &'r str {
    match expected {
        "431 authorization_too_large" if response.text().contains("request_header") => {
            "431 request_header_too_large"
        }
        expected => expected,
    }
}

fn send(sidecar: &Sidecar, row: &TokenRow, lines: Vec<Vec<u8>>) -> Message {
    let target = row.query.as_ref().map_or_else(
        || "/orders/list".to_owned(),
        |query| format!("/orders/list?{query}"),
    );
    let request = lines
        .into_iter()
        .fold(Request::new("GET", target), Request::line);
    sidecar.anonymous().send(&request)
}

/// Checks that every 401 names the way to authenticate (RFC 6750 §3).
fn challenge(status: u16, response: &Message) -> Result<(), String> {
    let challenges = response.header("www-authenticate");
    let realm = challenges
        .iter()
        .any(|challenge| challenge.starts_with(r#"Bearer realm="postern""#));
    (status != 401 || realm)
        .then_some(())
        .ok_or_else(|| format!("WWW-Authenticate is {challenges:?}"))
}

#[test]
fn contract_5_3_the_auth_server_rejects_forged_tokens_as_well() {
    let server = AuthServer::start();
    let forge = Forge::new(SigningType::Rsa);
    let good = server.login();
    let own = server.anonymous().bearing(&good).get(USER_DETAILS);
    assert_eq!(own.status(), 200);
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let other_payload = encode(br#"{"username":"root","userId":"0","exp":9999999999}"#);
    let none = encode(br#"{"alg":"none","typ":"JWT"}"#);
    let foreign = forge.token(tests::clock::now(), &serde_json::Value::Null);
    let altered = format!("{header}.{other_payload}.{signature}");
    for (token, expected) in [
        (foreign, "401 token_signature"),
        (altered, "401 token_signature"),
        (format!("{none}.{payload}."), "401 token_algorithm"),
        (format!("{signed}."), "401 token_signature"),
        (signed.to_owned(), "401 token_malformed"),
    ] {
        assert_eq!(
            verdict(&server.anonymous().bearing(&token).get(USER_DETAILS)),
            expected,
            "{token}"
        );
    }
}
