//! Tokens in fields, and descriptions of other values.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::*;
use token_corpus::fields::headers;

#[test]
fn a_token_is_never_printed() {
    let token = Bearer::new("a.b.c").unwrap();
    assert_eq!(format!("{token:?}"), "Bearer([redacted])");
}

#[test]
fn what_stands_in_place_of_a_token_is_described_without_it() {
    for (field, found) in [
        (
            "Bearer \"hush.a.b\"",
            "character 1 of the token is '\"', which no token has",
        ),
        ("Bearer <hush.a.b>", "character 1 of the token is '<'"),
        ("Bearer ${HUSH}", "character 1 of the token is '$'"),
        ("Bearer [object Object]", "character 1 of the token is '['"),
        ("bearer  hush.a.b,", "character 9 of the token is ','"),
        ("Bearer hush.a.b x", "character 9 of the token is ' '"),
        ("Bearer Bearer hush.a.b", "character 7 of the token is ' '"),
        ("Bearer hush\thush", "character 5 of the token is '\\t'"),
        ("Bearer ", "the token is empty"),
        ("Bearer", "the token is empty"),
        ("", "it is empty"),
        (
            "Bearer: hush.a.b",
            "it begins with `Bearer:`, and not with `Bearer` and a blank",
        ),
        ("BEARER=hush.a.b", "it begins with `Bearer=`"),
        ("Bearer,hush.a.b", "it begins with `Bearer,`"),
        ("Bearer\thush.a.b", "it begins with `Bearer\\t`"),
        ("Bearer%20hush.a.b", "it begins with `Bearer%20`"),
        ("Bearerhush.a.b", "it begins with `Bearer` without a blank"),
        ("\"Bearer hush.a.b\"", "it begins with '\"'"),
        ("<hush.a.b>", "it begins with '<'"),
        ("Token hush.a.b", "it begins with `Token`"),
        ("token=hush.a.b", "it begins with `Token`"),
        ("tokenhush.a.b", "it begins with something else"),
        ("jwt hush.a.b", "it begins with `JWT`"),
        ("Basic hush", "it begins with `Basic`"),
        ("negotiate hush==", "it begins with `Negotiate`"),
        ("NTLM", "it begins with `NTLM`"),
        (
            "AWS4-HMAC-SHA256 Credential=hush",
            "it begins with `AWS4-HMAC-SHA256`",
        ),
        ("eyJhush.hush.hush", "it begins with a JWT, and not with"),
        ("eyJhush.hush", "it begins with something else"),
        ("hush.a.b", "it begins with something else"),
        ("hush hush", "it begins with something else"),
    ] {
        assert!(parse(field.as_bytes()).is_err(), "{field}");
        let described = unreadable(field.as_bytes(), &[Scheme::Bearer], false);
        assert!(described.starts_with(found), "{field}: {described}");
        let lower = described.to_ascii_lowercase();
        assert!(!lower.contains("hush"), "{described}");
    }
    // In place of a token alone.
    for (field, found) in [
        ("", "the token is empty"),
        ("\"hush\"", "character 1 of the token is '\"'"),
        (
            "Bearer%20hush",
            "it begins with `Bearer%20`, and not with the token",
        ),
        ("s:hush.a.b", "it begins with `s:`"),
        ("s%3Ahush.a.b", "it begins with `s%3A`"),
        ("Basic hush", "it begins with `Basic`"),
        ("hush%20a", "character 5 of the token is '%'"),
    ] {
        let described = unreadable(field.as_bytes(), &[Scheme::Bearer], true);
        assert!(described.starts_with(found), "{field}: {described}");
        assert!(!described.contains("hush"), "{described}");
    }
    // Blanks and case are no error.
    assert_eq!(parse(b"bearer  a.b.c").unwrap().as_str(), "a.b.c");
}

#[test]
fn one_field_of_all_token_headers_holds_the_token() {
    let names = ["x-first", "x-second"].map(HeaderName::from_static);
    use InvalidToken as R;
    let (repeated, malformed) = (Err(R::AuthorizationRepeated), Err(R::Malformed));
    let (first, second) = (("x-first", "a.b.c"), ("x-second", "a.b.c"));
    for (fields, expected) in [
        (&[][..], Ok(None)),
        (&[first], Ok(Some(("a.b.c", 0)))),
        (&[second], Ok(Some(("a.b.c", 1)))),
        (&[("x_first", "a.b.c")], Ok(None)),
        (&[("x-first", "")], malformed),
        (&[("x-first", "Bearer a")], Ok(Some(("a", 0)))),
        (&[("x-first", "bearer  a")], Ok(Some(("a", 0)))),
        (&[("x-first", "Bearer")], malformed),
        (&[("x-first", "Bearer a b")], malformed),
        (&[("x-first", "Basic a")], malformed),
        (&[("x-first", "DPoP a.b.c")], Err(R::Bound)),
        (&[("x-first", "dpop  a")], Err(R::Bound)),
        (&[("x-first", "DPoP")], Ok(Some(("DPoP", 0)))),
        (&[("x-first", "DPoP a b")], malformed),
        (&[("x-first", "DPoP aaaaaa")], Err(R::AuthorizationTooLarge)),
        (&[("x-first", "\"a.b.c\"")], malformed),
        (&[("x-first", "aaaaaaaaaaa")], Err(R::AuthorizationTooLarge)),
        (&[("x-first", "Bearer aaaa")], Err(R::AuthorizationTooLarge)),
        (&[first, first], repeated),
        (&[("x-first", ""), second], repeated),
    ] {
        let headers = headers(fields);
        let token = from_token_headers(&headers, &names, 10);
        let found = token
            .map(|token| token.map(|token| (token.as_str(), token.location().header().unwrap())));
        assert_eq!(found, expected, "{fields:?}");
    }
}

#[test]
fn a_websocket_announces_its_token_behind_bearer() {
    use InvalidToken as R;
    let (repeated, malformed) = (Err(R::AuthorizationRepeated), Err(R::Malformed));
    let large = Err(R::AuthorizationTooLarge);
    let (nothing, chat) = (|| Some(vec![]), || Some(vec!["chat"]));
    let token = Ok(Some("a.b.c"));
    for (protocols, expected, left) in [
        (&["bearer, a.b.c"][..], token, nothing()),
        (
            &["bearer,a.b.c,chat", "log"],
            token,
            Some(vec!["chat", "log"]),
        ),
        (&["bearer", "a.b.c"], token, nothing()),
        (&[",bearer,,a.b.c"], token, nothing()),
        (&["bearer, a, chat, a"], Ok(Some("a")), chat()),
        (&["chat, bearer, a.b.c"], token, chat()),
        (&["chat", "bearer", "a.b.c"], token, chat()),
        (&["chat, bearer"], malformed, chat()),
        (&["chat, a.b.c"], Ok(None), None),
        (&["a.b.c, bearer"], malformed, Some(vec!["a.b.c"])),
        (&["bearer, a, bearer, a, chat"], repeated, chat()),
        (&["bearer, a", "chat, bearer, b"], repeated, chat()),
        (&["bearer, bearer, a"], repeated, nothing()),
        (&["Bearer, a.b.c"], Ok(None), None),
        (&[], Ok(None), None),
        (&["bearer"], malformed, nothing()),
        (&["bearer,"], malformed, nothing()),
        (&["bearer, a b"], malformed, nothing()),
        (&["bearer, DPoP a"], Err(R::Bound), nothing()),
        (&["bearer, aaaaaaaaaaa"], large, nothing()),
    ] {
        let protocol = |value: &&'static str| ("sec-websocket-protocol", *value);
        let headers = headers(&protocols.iter().map(protocol).collect::<Vec<_>>());
        let token = from_websocket_protocol(&headers, 10);
        assert_eq!(
            token.map(|token| token.map(Bearer::as_str)),
            expected,
            "{protocols:?}"
        );
        let left = left.map(|left| left.into_iter().map(str::as_bytes).collect::<Vec<_>>());
        let found = websocket_protocols_without_token(&headers);
        assert_eq!(found, left, "{protocols:?}");
    }
}
