#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use proptest::prelude::*;

use super::*;
use crate::identity::service_fields::tests::{lines_of, received};

fn header() -> UserHeader {
    UserHeader::new("X-Current-User", 1000).unwrap()
}

fn user(nick_name: &str) -> CurrentUserDetails {
    CurrentUserDetails {
        id: Some("1".into()),
        nick_name: Some(nick_name.into()),
        ..CurrentUserDetails::default()
    }
}

#[test]
fn the_value_is_json_without_nulls_in_ascii() {
    for (nick_name, json) in [
        ("Ada", r#"{"id":"1","nickName":"Ada"}"#),
        (
            "\u{7ba1}\u{7406}",
            r#"{"id":"1","nickName":"\u7ba1\u7406"}"#,
        ),
        ("\u{1f600}!", r#"{"id":"1","nickName":"\ud83d\ude00!"}"#),
        (
            "a\u{7f}\u{80}b",
            r#"{"id":"1","nickName":"a\u007f\u0080b"}"#,
        ),
        ("\r\n\0\"\\", r#"{"id":"1","nickName":"\r\n\u0000\"\\"}"#),
    ] {
        let identity = header()
            .identity(&user(nick_name), KeySetIndex(0), &[])
            .unwrap();
        assert_eq!(identity.user.to_str().unwrap(), json);
        assert_eq!(header().user(&identity).unwrap(), user(nick_name));
        let parsed: Value = serde_json::from_slice(identity.user.as_bytes()).unwrap();
        assert_eq!(parsed.get("nickName").unwrap().as_str(), Some(nick_name));
    }
}

#[test]
fn base64url_holds_the_same_json() {
    let header = header().with_encoding(Encoding::Base64url);
    // Lengths of every remainder: none gets padding.
    for nick_name in ["Ada", "Adam", "Adele", "\u{7ba1}\u{7406}?>"] {
        let identity = header
            .identity(&user(nick_name), KeySetIndex(0), &[])
            .unwrap();
        let text = identity.user.to_str().unwrap();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        assert!(text.bytes().all(plain), "{text}");
        let json = URL_SAFE_NO_PAD.decode(text).unwrap();
        assert_eq!(json, ascii_json(&WithoutNulls(&user(nick_name))).unwrap());
        assert_eq!(header.user(&identity).unwrap(), user(nick_name));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lesson_c25_any_user_is_visible_ascii_and_reads_back(
        fields in prop::collection::btree_map(
            prop::sample::select(CurrentUserDetails::FIELDS),
            prop_oneof![".{0,30}", "[\\x00-\\x1f\\x7f-\\u{a0}\\u{d7ff}\\u{e000}\\u{10ffff}\"\\\\]{0,30}"],
            0..8,
        ),
        limit in 2..2000_usize,
    ) {
        let user: CurrentUserDetails =
            serde_json::from_value(serde_json::to_value(&fields).unwrap()).unwrap();
        let unlimited = UserHeader::new("X-Current-User", usize::MAX).unwrap();
        let identity = unlimited.identity(&user, KeySetIndex(0), &[]).unwrap();
        prop_assert!(identity.user.as_bytes().iter().all(|byte| matches!(byte, b' '..=b'~')));
        prop_assert_eq!(unlimited.user(&identity).unwrap(), user.clone());
        let limited = UserHeader::new("X-Current-User", limit).unwrap().identity(&user, KeySetIndex(0), &[]);
        if identity.user.len() <= limit {
            prop_assert_eq!(limited, Ok(identity));
        } else {
            prop_assert_eq!(limited, Err(Rejection::IdentityTooLarge));
        }
    }
}

#[test]
fn lesson_c25_values_past_the_budget_are_rejected_not_cut() {
    let json = r#"{"id":"1","nickName":"Ada"}"#;
    let base64url = json.len().div_ceil(3) * 4;
    let claim = |text: &str| vec![Some(Value::from(text))];
    for (encoding, claims, length) in [
        (Encoding::Json, vec![], json.len()),
        (Encoding::Base64url, vec![], base64url),
        (Encoding::Json, claim("four"), json.len() + 4),
        (Encoding::Json, claim("\u{e4}"), json.len() + 6),
        (Encoding::Json, vec![None], json.len()),
    ] {
        for (budget, fits) in [(length, true), (length - 1, false)] {
            let header = UserHeader::new("X-Current-User", budget).unwrap();
            let identity = header
                .with_claim("X-Claim=claim", None)
                .unwrap()
                .with_encoding(encoding)
                .identity(&user("Ada"), KeySetIndex(0), &claims);
            let length = identity.map(|identity| identity.value_bytes());
            let expected = fits.then_some(budget).ok_or(Rejection::IdentityTooLarge);
            assert_eq!(length, expected, "{encoding:?} {claims:?}");
        }
    }
}

#[test]
fn a_field_with_a_similar_name_is_another_one() {
    let kept = ["X-Current-Users: kept", "XCurrentUser: kept"];
    let mut fields = received(&[
        ("X-Current-User", "forged"),
        ("X-Current-Users", "kept"),
        ("XCurrentUser", "kept"),
    ]);
    header().apply(&mut fields, None);
    assert_eq!(lines_of(&fields), kept);
}
