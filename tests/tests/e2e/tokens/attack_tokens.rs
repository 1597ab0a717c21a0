//! `tests/corpus/data/attack_tokens.toml` through a sidecar; `crates/token` tries every row alone.

use tests::actors::auth_server::{AuthServer, USER_DETAILS};
use tests::actors::client::Request;
use tests::actors::sidecar::Sidecar;
use tests::actors::stack::ForgedStack;
use tests::actors::token_forge::{Forge, encode};
use tests::keys::SigningType;
use tests::services::echo_service::EchoService;
use tests::tables::Verdicts;
use tests::token_rows::{KeySetShape, Policy, TokenRow, TokenTable};
use tests::wire::clock::within_one_second;
use tests::wire::message::Message;

fn rows() -> Vec<TokenRow> {
    TokenTable::load().unwrap().token
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
        let stack = ForgedStack::of(signing_type, |plan| {
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
    let verdict = response.verdict();
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
    let request = Request::new("GET", target).lines(lines);
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
    let other_payload =
        encode(br#"{"iss":"auth","username":"root","userId":"0","exp":9999999999}"#);
    let none = encode(br#"{"alg":"none","typ":"JWT"}"#);
    let foreign = forge.token(tests::wire::clock::now(), &serde_json::Value::Null);
    let altered = format!("{header}.{other_payload}.{signature}");
    for (token, expected) in [
        (foreign, "401 token_signature"),
        (altered, "401 token_signature"),
        (format!("{none}.{payload}."), "401 token_algorithm"),
        (format!("{signed}."), "401 token_signature"),
        (signed.to_owned(), "401 token_malformed"),
    ] {
        assert_eq!(server.verdict(&token), expected, "{token}");
    }
}
