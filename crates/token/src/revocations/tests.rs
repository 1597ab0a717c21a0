#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::collections::BTreeSet;
use std::hash::BuildHasher;

use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use serde_json::{Value, json};

use super::*;
use crate::claims::Claims;
use crate::claims::user_details::CurrentUserDetails;
use crate::keys::VerificationKey;
use crate::keys::signing_type::SigningType;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn keys(secret: &str) -> KeySet {
    KeySet::nameless(VerificationKey::parse(SigningType::Hmac, secret).unwrap())
}

fn signed(header: &Value, payload: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(header), encode(payload));
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let signature = crypto::sign(signed.as_bytes(), &key, Algorithm::HS256).unwrap();
    format!("{signed}.{signature}")
}

/// Returns the head of these lines.
fn head(lines: &[String]) -> String {
    let chain = lines
        .iter()
        .fold(Chain::default(), |chain, line| chain.next(line));
    let head = ListHead::new(&chain, lines.len() as u64, 5);
    signed(
        &json!({"alg": "HS256", "typ": LIST_TYPE}),
        &serde_json::to_value(head).unwrap(),
    )
}

fn response(head: &str, lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("{head}\n{lines}")
}

fn verify(
    response: &str,
    known: Option<&RevocationList>,
) -> Result<RevocationList, RevocationListError> {
    RevocationList::verify(&keys(SECRET), response, known)
}

fn tokens(ids: impl IntoIterator<Item = u32>) -> Vec<String> {
    let line = |id: u32| Revoked::Token(RevocationDigest::for_token(&format!("token {id}")));
    ids.into_iter().map(|id| line(id).to_string()).collect()
}

fn token(id: &str, user: &str, issued_at: Option<i64>) -> TokenDigests {
    TokenDigests::from_claims(&Claims {
        token_id: (!id.is_empty()).then(|| id.to_owned()),
        user_id: user.to_owned(),
        issued_at,
        ..Claims::default()
    })
}

/// Returns a token of a user `ada` in a session `s`, as a table for another issuer reads it.
fn foreign(issuer: &str, issued_at: Option<i64>) -> TokenDigests {
    TokenDigests::from_claims(&Claims {
        issuer: Some(issuer.to_owned()),
        subject: Some("ada".to_owned()),
        session: Some("s".to_owned()),
        token_id: Some("t".to_owned()),
        issued_at,
        user_id: "by another claim".to_owned(),
        mapped_user: Some(Box::new(CurrentUserDetails::default())),
        ..Claims::default()
    })
}

#[test]
fn an_id_of_another_issuer_counts_with_that_issuer() {
    let foreign_user = |issuer| RevocationDigest::for_foreign_user(issuer, "ada");
    let own_user = RevocationDigest::for_user("ada");
    for (line, expected) in [
        (
            Revoked::Token(RevocationDigest::for_foreign_session("https://idp", "s")),
            [true, false, false],
        ),
        (
            Revoked::Token(RevocationDigest::for_foreign_session("https://idps", "")),
            [false; 3],
        ),
        (
            Revoked::User(foreign_user("https://idp"), 100),
            [true, false, false],
        ),
        (Revoked::User(foreign_user("https://idp"), 99), [false; 3]),
        (
            Revoked::Application(RevocationDigest::for_issuer("https://idp"), 100),
            [true, false, false],
        ),
        // Of the server's own tokens, which a table for another issuer may accept.
        (
            Revoked::Token(RevocationDigest::for_token("s")),
            [false, true, false],
        ),
        (
            Revoked::Token(RevocationDigest::for_token("t")),
            [false, true, false],
        ),
        (Revoked::User(own_user, 100), [false, true, false]),
        (Revoked::Everyone(100), [true; 3]),
    ] {
        let lines = [line.to_string()];
        let chain = Chain::default().next(&lines[0]);
        let head = ListHead {
            issuer: Some("https://auth".to_owned()),
            ..ListHead::new(&chain, 1, 5)
        };
        let header = json!({"alg": "HS256", "typ": LIST_TYPE});
        let head = signed(&header, &serde_json::to_value(head).unwrap());
        let list = verify(&response(&head, &lines), None).unwrap();
        let issuers = ["https://idp", "https://auth", "https://id"];
        let found = issuers.map(|issuer| list.revokes(&foreign(issuer, Some(99))));
        assert_eq!(found, expected, "{line}");
    }
    let mut revoked = RevokedTokens::default();
    revoked.add(Revoked::User(foreign_user("https://idp"), 1));
    assert!(
        revoked.revokes(&foreign("https://idp", None)),
        "without iat"
    );
}

#[test]
fn each_kind_of_line_ends_its_tokens_and_no_others() {
    let by_token = Revoked::Token(RevocationDigest::for_token("a"));
    let by_user = Revoked::User(RevocationDigest::for_user("7"), 100);
    let by_time = Revoked::Everyone(100);
    for (line, id, who, issued_at, revoked) in [
        (by_token, "a", "7", Some(1), true),
        (by_token, "b", "7", Some(1), false),
        (by_token, "", "a", Some(1), false),
        (by_user, "a", "7", Some(99), true),
        (by_user, "a", "7", Some(100), false),
        (by_user, "a", "7", None, true),
        (by_user, "7", "8", Some(1), false),
        (by_time, "a", "8", Some(99), true),
        (by_time, "a", "8", Some(100), false),
    ] {
        let mut tokens = RevokedTokens::default();
        tokens.add(line.to_string().parse().unwrap());
        let is_revoked = tokens.revokes(&token(id, who, issued_at));
        assert_eq!(is_revoked, revoked, "{line} {id} {who} {issued_at:?}");
    }
}

#[test]
fn the_tokens_of_an_application_are_those_with_its_client_id() {
    let mut tokens = RevokedTokens::default();
    let orders = RevocationDigest::for_application("orders");
    for before in [100, 50] {
        tokens.add(Revoked::Application(orders, before));
    }
    for (client_id, issued_at, revoked) in [
        (Some("orders"), 99, true),
        (Some("orders"), 100, false),
        (Some("stock"), 99, false),
        (None, 99, false),
    ] {
        let token = TokenDigests::from_claims(&Claims {
            user_id: "orders".to_owned(),
            client_id: client_id.map(ToOwned::to_owned),
            issued_at: Some(issued_at),
            ..Claims::default()
        });
        assert_eq!(tokens.revokes(&token), revoked, "{client_id:?}");
    }
}

#[test]
fn only_a_head_signed_by_a_key_in_force_counts() {
    let of_type = |name: &str| json!({"alg": "HS256", "typ": name});
    let empty = json!({"seq": 1, "iat": 5, "count": 0, "digest": Chain::default().digest()});
    let good = signed(&of_type(LIST_TYPE), &empty);
    let list = verify(&good, None).unwrap();
    assert_eq!((list.seq(), list.issued_at(), list.count()), (1, 5, 0));
    let other = keys("another secret of thirty-two bytes");
    assert_eq!(
        RevocationList::verify(&other, &good, None).unwrap_err(),
        RevocationListError::Signature(InvalidToken::Signature)
    );
    for header in [of_type("JWT"), of_type("at+jwt"), json!({"alg": "HS256"})] {
        assert_eq!(
            verify(&signed(&header, &empty), None).unwrap_err(),
            RevocationListError::Signature(InvalidToken::Header)
        );
    }
    for bad in [
        json!({"iat": 5, "count": 0, "digest": ""}),
        json!({"seq": 1, "count": 0, "digest": ""}),
        json!({"seq": -1, "iat": 5, "count": 0, "digest": ""}),
        json!({"seq": 1, "iat": 5}),
    ] {
        let error = verify(&signed(&of_type(LIST_TYPE), &bad), None).unwrap_err();
        assert_eq!(error, RevocationListError::Malformed, "{bad}");
    }
}

#[test]
fn lines_are_those_of_the_head_or_none() {
    let all = tokens(1..=3);
    let whole = response(&head(&all), &all);
    let known = verify(&response(&head(&all[..1]), &all[..1]), None).unwrap();
    let list = verify(&whole, None).unwrap();
    assert_eq!(list.to_string(), whole);
    let found = verify(&response(&head(&all), &all[1..]), Some(&known));
    assert_eq!(found, Ok(list.clone()));
    assert_eq!(verify(&whole, Some(&known)), Ok(list.clone()));
    assert!(list.extends(&known) && !known.extends(&list));
    assert_eq!(verify(&head(&all), Some(&list)), Ok(list.clone()));
    let swapped = [all[1].clone(), all[0].clone(), all[2].clone()];
    for lines in [
        &all[..2],
        &all[1..],
        &swapped,
        &tokens(1..=4),
        &tokens([1, 2, 2]),
    ] {
        let error = verify(&response(&head(&all), lines), None).unwrap_err();
        assert_eq!(error, RevocationListError::Lines, "{lines:?}");
    }
    for line in "token short|token|user AAAAAAAAAAAAAAAA x|anyone 1|".split('|') {
        let lines = [line.to_owned()];
        let error = verify(&response(&head(&lines), &lines), None).unwrap_err();
        assert_eq!(error, RevocationListError::Malformed, "{line}");
    }
}

#[test]
fn digests_are_spread_by_their_hashes() {
    let digests = (0..100).map(|id| RevocationDigest::for_token(&id.to_string()));
    let hashes = digests.map(|digest| Digests::default().hasher().hash_one(digest));
    assert_eq!(hashes.collect::<BTreeSet<u64>>().len(), 100);
}

#[test]
fn forty_thousand_tokens_take_less_than_three_megabytes() {
    let lines = tokens(0..40_000);
    let response = response(&head(&lines), &lines);
    assert!(response.len() <= MAX_LIST_BYTES / 2, "{}", response.len());
    let list = verify(&response, None).unwrap();
    let Lines { text, revoked } = &*list.lines;
    let entry = size_of::<RevocationDigest>() + 1;
    let in_memory = text.capacity() + revoked.tokens.capacity() * 8 / 7 * entry;
    assert!(in_memory < 3_000_000, "{in_memory}");
    assert!(revoked.revokes(&token("token 39999", "", None)));
    assert!(!revoked.revokes(&token("token 40000", "", None)));
}
