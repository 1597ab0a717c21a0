//! Properties that hold for all input, and the tables of tokens and paths. The values of a property are made up by
//! `proptest`, which shows the smallest that fails.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use http::{HeaderMap, HeaderName, HeaderValue, Method, header::AUTHORIZATION};
use postern_contract::interceptor::{AuthRequirement, Interceptor};
use postern_contract::rejection::Rejection;
use postern_http::path::canonical::RequestPath;
use postern_http::path::patterns::PassList;
use postern_token::claims::Claims;
use postern_token::keys::algorithms::asymmetric;
use postern_token::keys::{KeySet, VerificationKey};
use postern_token::policy::{Audience, BoundTokens, RequiredIssuer, VerificationPolicy};
use postern_token::sources::bearer;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;
use token_corpus::keys::{Algorithm, SigningKey, SigningType};
use token_corpus::template;
use token_corpus::token_forge::Forge;
use token_corpus::token_rows::{KeySetShape, Policy, TokenTable};

const NOW: i64 = 1_800_000_000;
/// The alphabet of `token68` (RFC 9110 §11.2).
const TOKEN68: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=";

fn key_set(forge: &Forge) -> KeySet {
    KeySet::nameless(verification_key(forge.trusted()))
}

fn verification_key(key: &SigningKey) -> VerificationKey {
    if key.algorithm() == Algorithm::HS256 {
        let hmac = postern_token::keys::signing_type::SigningType::Hmac;
        return VerificationKey::parse(hmac, &key.served()).unwrap();
    }
    let named = asymmetric(key.algorithm().name()).unwrap();
    let keys = KeySet::from_file(key.served().as_bytes(), &[named]).unwrap();
    keys.keys()[0].clone()
}

fn verify(keys: &KeySet, value: &[u8]) -> Result<Claims, Rejection> {
    let value = HeaderValue::from_bytes(value).map_err(|_| Rejection::RequestMalformed)?;
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    verify_with(Policy::Default, keys, &headers)
}

fn verify_with(policy: Policy, keys: &KeySet, headers: &HeaderMap) -> Result<Claims, Rejection> {
    let token = bearer::from_headers(headers, 16 * 1024, false)?.ok_or(Rejection::TokenMissing)?;
    let own = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let audience = match policy {
        Policy::Audience => Audience::OneOf(own(&["orders", "stock"])),
        _ => Audience::OneOfOrNone(own(&["test", "orders"])),
    };
    let policy = VerificationPolicy {
        issuer: match policy {
            Policy::Issuer => RequiredIssuer::Is("auth".to_owned()),
            _ => RequiredIssuer::Any,
        },
        audience,
        leeway_seconds: 30,
        accept_no_expiry: policy == Policy::NoExpiry,
        bound_tokens: match policy {
            Policy::Bound => BoundTokens::Unchecked,
            _ => BoundTokens::Rejected,
        },
        ..VerificationPolicy::default()
    };
    policy.verify_at(keys, token, NOW).map_err(Rejection::from)
}

/// Returns the lines as a server's parser does: without blanks around values.
fn header_map(lines: &[Vec<u8>]) -> HeaderMap {
    let field = |line: &Vec<u8>| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap();
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).unwrap();
        (HeaderName::from_bytes(&line[..colon]).unwrap(), value)
    };
    lines.iter().map(field).collect()
}

#[test]
fn contract_5_the_token_table_at_the_verifier() {
    let table = TokenTable::load().unwrap().token;
    let mut forge = Forge::new(Algorithm::RS256);
    let mut another = SigningKey::generate(Algorithm::RS256);
    for algorithm in Algorithm::VERIFIED {
        forge = forge.meant_for(algorithm);
        another = another.meant_for(algorithm);
        let key = verification_key(forge.trusted());
        for row in table.iter().filter(|row| row.is_tried_with(algorithm)) {
            for shape in row.shapes() {
                let keys = match shape {
                    KeySetShape::Nameless => KeySet::nameless(key.clone()),
                    KeySetShape::Named => {
                        KeySet::named(vec![verification_key(&another), key.clone()])
                    }
                };
                let lines = row.header_lines(&forge, key.id().as_str(), NOW);
                let verdict = match verify_with(row.policy, &keys, &header_map(&lines)) {
                    Ok(_) => "accepted".to_owned(),
                    Err(why) => format!("{} {}", why.status().as_u16(), why.reason()),
                };
                let name = format!("{} ({}, {shape:?})", row.name, algorithm.name());
                assert_eq!(verdict, row.expected(shape), "{name}");
            }
        }
    }
}

/// Every row of `pass_list.toml` and `canonical_paths.toml`.
#[test]
fn contract_4_4_the_path_tables_at_the_interceptor() {
    for file in ["pass_list.toml", "canonical_paths.toml"] {
        let path = format!("{}/../../tests/data/{file}", env!("CARGO_MANIFEST_DIR"));
        let table: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        for group in table["group"].as_array().unwrap() {
            let context = group
                .get("context")
                .map_or(CONTEXT, |text| text.as_str().unwrap());
            let patterns = group["patterns"].as_array().unwrap().iter();
            let list = PassList::parse(patterns.map(|text| text.as_str().unwrap())).unwrap();
            let interceptor = Interceptor::new(context.parse().unwrap(), list, 8192);
            let interceptor = interceptor.with_rules(false);
            for row in group["row"].as_array().unwrap() {
                let target = template::fill(row["path"].as_str().unwrap(), |_| None);
                let path = target.split(|byte| *byte == b'?').next().unwrap();
                let found = match interceptor.classify(&Method::GET, path, &HeaderMap::new()) {
                    Ok(AuthRequirement::Pass) => "pass",
                    Err(Rejection::TokenMissing) => "token",
                    Err(Rejection::PathNotCanonical) => "rejected",
                    other => unreachable!("{other:?}"),
                };
                assert_eq!(Some(found), row["expect"].as_str(), "{row}");
            }
        }
    }
}

fn bearing(token: &[u8]) -> Vec<u8> {
    [b"Bearer ", token].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_get_a_response_and_are_never_verified(
        bytes in vec(any::<u8>(), 0..300),
        token in vec(prop::sample::select(TOKEN68), 0..300),
        header in vec(any::<u8>(), 0..40),
        payload in ".{0,60}",
    ) {
        let forge = Forge::new(SigningType::Hmac);
        let keys = key_set(&forge);
        let unsigned = token_corpus::token_forge::signing_input(&header, payload.as_bytes());
        let unsigned = format!("{unsigned}.{}", String::from_utf8_lossy(&token));
        for value in [bytes.clone(), bearing(&bytes), bearing(&token), bearing(unsigned.as_bytes())] {
            prop_assert!(verify(&keys, &value).is_err());
        }
    }

    #[test]
    fn a_token_says_what_was_signed_whatever_that_is(
        // Names without the character that stands for half of any.
        username in r"[^\x{fffd}]{1,40}", user_id in r"[^\x{fffd}]{1,40}", nick_name in ".{0,40}", grade in ".{0,40}",
    ) {
        let forge = Forge::new(SigningType::Ecdsa);
        let changes = json!({
            "username": username, "userId": user_id, "nickName": nick_name, "extraInfo": {"grade": grade},
        });
        let claims = verify(&key_set(&forge), &bearing(forge.token(NOW, &changes).as_bytes())).unwrap();
        prop_assert_eq!(&claims.username, &username);
        let user = claims.into_user_details();
        prop_assert_eq!(user.id, Some(user_id));
        prop_assert_eq!(user.account, Some(username));
        prop_assert_eq!(user.nick_name, Some(nick_name));
        prop_assert_eq!(user.grade, Some(grade));
    }

    #[test]
    fn a_token_with_a_byte_more_or_less_is_rejected(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let forge = Forge::new(SigningType::Hmac);
        let (keys, token) = (key_set(&forge), forge.token(NOW, &json!({})).into_bytes());
        let at = at.index(token.len());
        let mut shorter = token.clone();
        shorter.remove(at);
        let mut longer = token;
        longer.insert(at, byte);
        // A space between scheme and token is no part of the token.
        let only_a_space = at == 0 && byte == b' ';
        prop_assert!(verify(&keys, &bearing(&shorter)).is_err());
        prop_assert!(only_a_space || verify(&keys, &bearing(&longer)).is_err());
    }
}

/// Every byte, whatever it is changed into. The last letter of a part may hold bits that no byte comes
/// of: a decoder that drops them takes several spellings for one token. Here there is one, the others
/// are malformed (RFC 7515 §2, RFC 4648 §3.5).
#[test]
fn a_token_with_any_byte_changed_is_rejected() {
    let mut forge = Forge::new(Algorithm::RS256);
    for algorithm in Algorithm::VERIFIED {
        forge = forge.meant_for(algorithm);
        let (keys, token) = (key_set(&forge), forge.token(NOW, &json!({})).into_bytes());
        assert!(verify(&keys, &bearing(&token)).is_ok());
        let ends: Vec<usize> = (0..token.len())
            .filter(|&at| token.get(at + 1).is_none_or(|&next| next == b'.'))
            .collect();
        for at in 0..token.len() {
            // Elsewhere a neighbour in the alphabet, another case and what is no base64url stand for all.
            let others: Vec<u8> = match token[at] {
                _ if ends.contains(&at) => (0x20..=0xff).collect(),
                byte => vec![byte ^ 1, byte ^ 0x20, b'=', b'.', b'+', 0x20, 0x80],
            };
            for other in others.into_iter().filter(|other| *other != token[at]) {
                let mut changed = token.clone();
                changed[at] = other;
                let is_rejected = verify(&keys, &bearing(&changed)).is_err();
                assert!(
                    is_rejected,
                    "{algorithm:?}: {other:#04x} at {at} in {token:?}"
                );
            }
        }
    }
}

const CONTEXT: &str = "/orders";
const OPEN: [&str; 4] = ["/static/**", "/a/*.css", "/b-c/@me", "/d%40e/*"];

fn passes(path: &[u8]) -> Option<bool> {
    let list = PassList::parse(OPEN).unwrap();
    let interceptor = Interceptor::new(CONTEXT.parse().unwrap(), list, 8192);
    match interceptor.classify(&Method::GET, path, &HeaderMap::new()) {
        Ok(AuthRequirement::Pass) => Some(true),
        Err(Rejection::TokenMissing) => Some(false),
        _ => None,
    }
}

const PIECES: &str = r"
    orders static a x.css admin current user details / // / . .. ; ;a=b ..; \ %2e %2E%2e %2f %2F %5c %252e
    %252f %25 % %00 %20 %c3%a9 %c0%af %c0%ae %e0%80%af %ef%bc%8f %u002f ? # %23 %3f %3b %0a ... %41 ~ *
    b-c b%2Dc @me %40me d%40e d@e %2e%40 %2d %5f %7E %21 %22 %24 %26 %28 %2a %2B %2c %3A %3d %5B %5e %60 %7C [ ^ |";

/// Pieces of paths with a meaning to some service.
fn piece() -> impl Strategy<Value = String> {
    let known = PIECES.split_whitespace().collect::<Vec<_>>();
    let known = prop::sample::select(known);
    prop_oneof![9 => known.prop_map(str::to_owned), 1 => ".{0,2}"]
}

/// A path that is open, its letters escaped here and there, and something put into it.
fn disguised() -> impl Strategy<Value = String> {
    let open = vec![
        "/orders/static/x",
        "/orders/static/",
        "/orders/a/x.css",
        "/orders/b-c/@me",
        "/orders/d%40e/x",
    ];
    let open = prop::sample::select(open);
    let escape = prop_oneof![40 => Just(0_u8), 1 => Just(1), 1 => Just(2)];
    let escaping = vec(escape, 20);
    let (at, pieces) = (any::<prop::sample::Index>(), vec(piece(), 0..4));
    (open, escaping, at, pieces).prop_map(|(open, escaping, at, pieces)| {
        let escaped = |(letter, escape): (char, u8)| match escape {
            0 => letter.to_string(),
            1 => format!("%{:02x}", u32::from(letter)),
            _ => format!("%25{:02X}", u32::from(letter)),
        };
        let mut path: Vec<String> = open.chars().zip(escaping).map(escaped).collect();
        path.insert(at.index(path.len()), pieces.concat());
        path.concat()
    })
}

/// Out of an open directory, in all spellings of the way up.
fn climbing() -> impl Strategy<Value = String> {
    let open = vec!["/orders/static", "/orders/static/x", "/orders/a/x.css"];
    let open = prop::sample::select(open);
    let slash = prop::sample::select(vec!["/", "/", "//", "\\", "%2f", "%5c", ";/", "%252f"]);
    let dots = prop::sample::select(vec![
        "..", "..", "%2e%2e", ".%2E", "..;", "..%20", "%252e.", "%c0%ae.", "..%00", ".",
    ]);
    let target = prop::sample::select(vec!["/admin", "/x", "/orders/current/user/details", ""]);
    (open, vec((slash, dots), 1..4), target).prop_map(|(open, steps, target)| {
        let up: String = steps.into_iter().flat_map(<[&str; 2]>::from).collect();
        format!("{open}{up}{target}")
    })
}

fn path() -> impl Strategy<Value = String> {
    let anything = vec(piece(), 0..12).prop_map(|pieces| format!("/orders/{}", pieces.concat()));
    prop_oneof![anything, disguised(), climbing()]
}

/// As a service reads it that undoes escapes as long as there are any, takes backslashes for slashes, drops
/// parameters and what stands behind a NUL, and then resolves dots.
fn lenient(path: &[u8]) -> Vec<Vec<u8>> {
    let mut path = path.to_vec();
    loop {
        let next = unescaped(&path);
        if next == path {
            break;
        }
        path = next;
    }
    let text = String::from_utf8_lossy(&path).replace('\u{ff0f}', "/");
    let end = text.find(['\0', '?', '#']).unwrap_or(text.len());
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for segment in text[..end].split(['/', '\\']) {
        match segment.split(';').next().unwrap_or_default().trim_end() {
            "" | "." => {}
            ".." => drop(segments.pop()),
            name => segments.push(name.as_bytes().to_vec()),
        }
    }
    segments
}

/// The characters whose escapes a service leaves in a path before it looks for a route: none, those that
/// `decodeURI` leaves, those of RFC 3986 §2.3 but letters and digits, or all.
const KEPT: [&str; 4] = [
    "",
    ":/?#[]@!$&'()*+,;=",
    "-_~",
    "!\"$&'()*+,-:<=>@[]^_`{|}~",
];

/// As a service reads it that decodes other escapes than those.
fn names_with(path: &[u8], kept: &str) -> Vec<Vec<u8>> {
    let path = String::from_utf8_lossy(path).into_owned();
    let mut pieces = path.split('%');
    let mut read = pieces.next().unwrap().as_bytes().to_vec();
    for piece in pieces {
        let decoded = unescaped(format!("%{piece}").as_bytes());
        match decoded[0] {
            first if kept.as_bytes().contains(&first) => {
                read.extend(format!("%{first:02X}").into_bytes());
                read.extend(&decoded[1..]);
            }
            _ => read.extend(decoded),
        }
    }
    let names = read.split(|byte| *byte == b'/').skip(1);
    names.map(<[u8]>::to_vec).collect()
}

/// Returns true for a path that `OPEN` names, if a service reads both so.
fn is_open(path: &str, read: impl Fn(&[u8]) -> Vec<Vec<u8>>) -> bool {
    let names = read(path.as_bytes());
    let below = |folder: &str| names.starts_with(&read(folder.as_bytes()));
    let is_css = names.len() == 3 && names[2].ends_with(b".css");
    below("/orders/static")
        || (below("/orders/a") && is_css)
        || (below("/orders/d%40e") && names.len() < 4)
        || names == read(b"/orders/b-c/@me")
}

fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..2).filter(|_| first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let escape = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escape.unwrap_or(first));
        rest = if escape.is_some() { &tail[2..] } else { tail };
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_passes_is_decided_by_the_canonical_path_alone(path in path()) {
        let list = PassList::parse(OPEN).unwrap();
        let context: postern_http::path::patterns::ContextPath = CONTEXT.parse().unwrap();
        let decision = passes(path.as_bytes());
        let parsed = RequestPath::parse(path.as_bytes()).ok();
        match parsed.filter(|path| !path.hides_separators()) {
            None => prop_assert_eq!(decision, None),
            Some(parsed) => {
                let listed = context.strip(&parsed).is_some_and(|relative| list.matches(relative));
                prop_assert_eq!(decision, Some(listed));
            }
        }
    }

    #[test]
    fn no_encoding_of_a_path_opens_what_services_read_otherwise(path in path()) {
        if passes(path.as_bytes()) == Some(true) {
            prop_assert!(is_open(&path, lenient), "{path}");
            for kept in KEPT {
                prop_assert!(is_open(&path, |path| names_with(path, kept)), "{path} {kept}");
            }
        }
    }
}
