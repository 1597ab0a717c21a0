//! The verified-token cache, from outside: the work that it saves, and the tokens that it must not
//! accept (lesson B19).

use serde_json::{Value, json};
use tests::auth_server::USER_DETAILS;
use tests::client::verdict;
use tests::clock;
use tests::fake_auth_server::key_response;
use tests::keys::SigningType;
use tests::sidecar::{EVERY_SECOND, Sidecar};
use tests::stack::ForgedStack;
use tests::wait;

fn hits(sidecar: &Sidecar) -> u64 {
    sidecar
        .metric("postern_sidecar_token_cache_hits_total")
        .unwrap()
}

fn misses(sidecar: &Sidecar) -> u64 {
    sidecar
        .metric("postern_sidecar_token_cache_misses_total")
        .unwrap()
}

fn cached_bytes(sidecar: &Sidecar) -> u64 {
    sidecar.metric("postern_sidecar_token_cache_bytes").unwrap()
}

#[test]
fn a_repeated_token_is_cached_for_the_same_user() {
    let stack = ForgedStack::start();
    let named = json!({"nickName": "\u{7ba1}\u{7406} \u{1f600}"});
    let token = stack.forge.token(clock::now(), &named);
    let client = stack.sidecar.bearing(&token);
    let responses = [(); 3].map(|()| {
        assert_eq!(client.get("/list").status(), 200);
        stack
            .service
            .requests()
            .last()
            .unwrap()
            .header("x-current-user")
    });
    assert_eq!(responses[0].len(), 1);
    assert!(responses.iter().all(|response| *response == responses[0]));
    assert_eq!((misses(&stack.sidecar), hits(&stack.sidecar)), (1, 2));
}

#[test]
fn a_repeated_token_shows_the_same_user_details() {
    let stack = ForgedStack::start();
    let token = stack.token();
    let client = stack.sidecar.bearing(&token);
    let fresh = client.get(USER_DETAILS).json();
    assert_eq!(client.get("/list").status(), 200);
    let known = client.get(USER_DETAILS).json();
    assert_eq!((misses(&stack.sidecar), hits(&stack.sidecar)), (1, 2));
    assert_eq!(known, fresh);
    assert_eq!(known["data"].as_object().unwrap().len(), 27);
}

#[test]
fn a_token_that_differs_in_one_byte_is_another_one() {
    let stack = ForgedStack::start();
    let token = stack.token();
    assert_eq!(stack.sidecar.bearing(&token).get("/list").status(), 200);
    for at in (0..token.len()).step_by(17) {
        let other = if token.as_bytes()[at] == b'A' {
            "B"
        } else {
            "A"
        };
        let mut flipped = token.clone();
        flipped.replace_range(at..=at, other);
        let response = stack.sidecar.bearing(&flipped).get("/list");
        assert_eq!(response.status(), 401, "byte {at}");
    }
    let (signed, _) = token.rsplit_once('.').unwrap();
    for other in [
        token[..token.len() - 1].to_owned(),
        format!("{token}A"),
        format!("{signed}."),
        signed.to_owned(),
    ] {
        let response = stack.sidecar.bearing(&other).get("/list");
        assert_eq!(response.status(), 401, "{other}");
    }
    assert_eq!(hits(&stack.sidecar), 0);
}

#[test]
fn a_token_that_expires_between_two_requests_is_rejected() {
    let stack = ForgedStack::with(SigningType::Ecdsa, |plan| plan.flags(["--leeway", "0"]));
    let soon = json!({"exp": clock::now() + 3});
    let token = stack.forge.token(clock::now(), &soon);
    let client = stack.sidecar.bearing(&token);
    assert_eq!(client.get("/list").status(), 200);
    let rejected = wait::until("the end of the token", || {
        let verdict = verdict(&client.get("/list"));
        (verdict != "200").then_some(verdict)
    });
    assert_eq!(rejected, "401 token_expired");
    assert_eq!(verdict(&client.get(USER_DETAILS)), "401 token_expired");
    assert_eq!(misses(&stack.sidecar), 1, "it was known all the time");
}

#[test]
fn a_cached_token_of_a_replaced_key_is_rejected() {
    let stack = ForgedStack::with(SigningType::Ecdsa, |plan| plan.flags(EVERY_SECOND));
    let old = stack.token();
    for _ in 0..3 {
        assert_eq!(stack.sidecar.bearing(&old).get("/list").status(), 200);
    }
    assert!(cached_bytes(&stack.sidecar) > 0);
    let new_key = stack.forge.untrusted().served();
    stack.auth_server.set_reply(key_response(&new_key));
    let rejected = wait::until("the new key", || {
        let verdict = verdict(&stack.sidecar.bearing(&old).get("/list"));
        (verdict != "200").then_some(verdict)
    });
    assert_eq!(rejected, "401 token_signature");
    assert_eq!(cached_bytes(&stack.sidecar), 0, "gone with its key");
    let new = stack.forge.untrusted_token(clock::now(), &Value::Null);
    assert_eq!(stack.sidecar.bearing(&new).get("/list").status(), 200);
}

#[test]
fn a_flood_of_valid_tokens_displaces_no_token_in_use() {
    const BYTES: u64 = 100_000;
    let stack = ForgedStack::with(SigningType::Ecdsa, |plan| {
        plan.flags(["--token-cache-bytes", "100000"])
    });
    let token = |name: String| {
        let unique = json!({"jti": name});
        stack.forge.token(clock::now(), &unique)
    };
    let people: Vec<_> = (0..10).map(|n| token(format!("person-{n}"))).collect();
    let all_work = || {
        for token in &people {
            assert_eq!(stack.sidecar.bearing(token).get("/list").status(), 200);
        }
    };
    for _ in 0..3 {
        all_work();
    }
    for n in 0..600 {
        let token = token(format!("flood-{n}"));
        assert_eq!(stack.sidecar.bearing(&token).get("/list").status(), 200);
    }
    assert!(cached_bytes(&stack.sidecar) <= BYTES);
    let evictions = stack
        .sidecar
        .metric("postern_sidecar_token_cache_evictions_total")
        .unwrap();
    assert!(evictions > 200, "{evictions}");
    let before = hits(&stack.sidecar);
    all_work();
    assert_eq!(hits(&stack.sidecar) - before, 10);
}

#[test]
fn rejected_tokens_are_not_cached() {
    let stack = ForgedStack::start();
    let now = clock::now();
    let expired = stack.forge.token(now, &json!({"exp": now - 600}));
    let forged = stack.forge.untrusted_token(now, &Value::Null);
    for token in [expired, forged] {
        for _ in 0..2 {
            assert_eq!(stack.sidecar.bearing(&token).get("/list").status(), 401);
        }
    }
    assert_eq!((misses(&stack.sidecar), hits(&stack.sidecar)), (4, 0));
    assert_eq!(cached_bytes(&stack.sidecar), 0);
}

#[test]
fn without_memory_every_token_is_verified() {
    let stack = ForgedStack::with(SigningType::Ecdsa, |plan| {
        plan.flags(["--token-cache-bytes", "0"])
    });
    let token = stack.token();
    for _ in 0..3 {
        assert_eq!(stack.sidecar.bearing(&token).get("/list").status(), 200);
    }
    assert_eq!((misses(&stack.sidecar), hits(&stack.sidecar)), (0, 0));
}
