#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use serde_json::{Value as Json, json};
use token_corpus::token_forge::{Forge, Signature, encode, lay_over, signing_input};

use super::*;
use crate::keys::VerificationKey;
use crate::keys::signing_type::SigningType;

const NOW: i64 = 1_800_000_000;
const ISSUER: &str = "https://idp";

fn verify(form: Form, header: &Json, payload: &Json) -> Result<Vec<Ended>, InvalidStatement> {
    let forge = Forge::new(token_corpus::keys::SigningType::Hmac);
    let key = VerificationKey::parse(SigningType::Hmac, &forge.trusted().served()).unwrap();
    let mut full = json!({"alg": "HS256"});
    lay_over(&mut full, header);
    let input = signing_input(full.to_string().as_bytes(), payload.to_string().as_bytes());
    let token = format!("{input}.{}", encode(&forge.sign(Signature::Good, &input)));
    let expected = Expected {
        issuer: ISSUER,
        audiences: &["postern".to_owned()],
        max_age: 600,
    };
    let verified = Statement::verify(form, &KeySet::nameless(key), &token, expected, NOW);
    verified.map(|statement| statement.ended)
}

fn claims(changes: &Json) -> Json {
    let mut claims = json!({
        "iss": ISSUER, "aud": "postern", "iat": NOW, "jti": "1", "sub": "ada", "sid": "s",
        "events": {LOGOUT: {}},
    });
    lay_over(&mut claims, changes);
    claims
}

fn session(user: Option<&str>) -> Ended {
    Ended::Session {
        session: "s".to_owned(),
        user: user.map(str::to_owned),
    }
}

fn user() -> Ended {
    Ended::User("ada".to_owned())
}

#[test]
fn a_logout_token_ends_its_session_or_all_of_its_user() {
    let invalid = |invalid: InvalidToken| Err(InvalidStatement::Token(invalid));
    for (changes, expected) in [
        (json!({}), Ok(session(Some("ada")))),
        (json!({"sub": null}), Ok(session(None))),
        (json!({"sid": null, "aud": ["x", "postern"]}), Ok(user())),
        (
            json!({"iat": NOW - 600, "exp": NOW - 59}),
            Ok(session(Some("ada"))),
        ),
        (
            json!({"sub": null, "sid": null}),
            Err(InvalidStatement::Subject),
        ),
        (json!({"sid": ""}), Err(InvalidStatement::Subject)),
        (json!({"sid": 7.5}), Err(InvalidStatement::Subject)),
        (json!({"sid": true}), Err(InvalidStatement::Subject)),
        (json!({"sub": ""}), Err(InvalidStatement::Subject)),
        (json!({"nonce": "n"}), Err(InvalidStatement::Nonce)),
        (json!({"jti": null}), Err(InvalidStatement::Id)),
        (json!({"jti": ""}), Err(InvalidStatement::Id)),
        (json!({"events": [LOGOUT]}), Err(InvalidStatement::Events)),
        (
            json!({"events": {LOGOUT: true}}),
            Err(InvalidStatement::Events),
        ),
        (json!({"events": null}), Err(InvalidStatement::Events)),
        (json!({"iat": null}), Err(InvalidStatement::NoTime)),
        (json!({"iat": NOW - 601}), Err(InvalidStatement::TooOld)),
        (json!({"iat": NOW + 61}), Err(InvalidStatement::Ahead)),
        (json!({"exp": NOW - 60}), invalid(InvalidToken::Expired)),
        (
            json!({"iss": "https://other"}),
            invalid(InvalidToken::Issuer),
        ),
        (json!({"aud": "other"}), invalid(InvalidToken::Audience)),
        (json!({"aud": null}), invalid(InvalidToken::Audience)),
    ] {
        let found = verify(Form::LogoutToken, &json!({}), &claims(&changes));
        assert_eq!(found, expected.map(|ended| vec![ended]), "{changes}");
    }
    let mut with_null = claims(&json!({}));
    with_null["nonce"] = Json::Null;
    let found = verify(Form::LogoutToken, &json!({}), &with_null);
    assert_eq!(found, Err(InvalidStatement::Nonce));
}

#[test]
fn a_security_event_ends_what_its_subject_names() {
    let revoked = SESSION_EVENT;
    let changed = USER_EVENTS[0];
    let ada = json!({"format": "iss_sub", "iss": ISSUER, "sub": "ada"});
    let opaque = json!({"format": "opaque", "id": "s"});
    let both = json!({"format": "complex", "user": ada, "session": opaque});
    let other = json!({"format": "iss_sub", "iss": "https://other", "sub": "ada"});
    let mail = json!({"format": "email", "email": "ada@example.com"});
    let by_mail = json!({"format": "complex", "user": mail, "session": opaque});
    let nested = json!({"format": "complex", "user": both});
    for (event, subject, expected) in [
        (revoked, &ada, Ok(vec![user()])),
        (revoked, &opaque, Ok(vec![session(None)])),
        (revoked, &both, Ok(vec![session(Some("ada"))])),
        (revoked, &by_mail, Ok(vec![session(None)])),
        (changed, &ada, Ok(vec![user()])),
        (changed, &both, Ok(vec![user()])),
        (changed, &opaque, Ok(vec![Ended::User("s".to_owned())])),
        (revoked, &other, Err(InvalidStatement::Subject)),
        (changed, &mail, Err(InvalidStatement::Subject)),
        (changed, &by_mail, Err(InvalidStatement::Subject)),
        (changed, &nested, Err(InvalidStatement::Subject)),
        (changed, &Json::Null, Err(InvalidStatement::Subject)),
        ("urn:of-another-receiver", &mail, Ok(Vec::new())),
    ] {
        let header = json!({"typ": "secevent+jwt"});
        let new = claims(&json!({"events": {event: {}}, "sub_id": subject}));
        let found = verify(Form::SecurityEvent, &header, &new);
        assert_eq!(found, expected, "{event} {subject}");
        let draft = claims(&json!({"events": {event: {"subject": subject}}}));
        let found = verify(Form::SecurityEvent, &header, &draft);
        assert_eq!(found, expected, "{event} {subject} in the event");
    }
}
