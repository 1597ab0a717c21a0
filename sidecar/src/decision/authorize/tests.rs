//! Requests of every kind, authorized with verification keys and without.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "the test plays the issuer")]
use std::time::Instant;

use jsonwebtoken::{EncodingKey, Header};
use postern_contract::interceptor::Interceptor;
use postern_contract::rules::{AccessRules, RequiredClaim, Requirement, Rule, Unmatched};
use postern_http::invalid::InvalidRequest;
use postern_http::methods::Methods;
use postern_http::path::patterns::PassList;
use postern_token::keys::signing_type::SigningType;
use postern_token::keys::{KeySet, KeySetIndex, VerificationKey};
use postern_token::policy::{RequiredIssuer, VerificationPolicy};
use postern_transport::net::client_address::TrustedProxies;
use serde_json::{Value, json};

use super::*;
use crate::decision::issuers::{Issuers, UserNames};
use crate::identity::user_header::UserHeader;
use crate::issuers::current::CurrentKeys;
use crate::issuers::installed_keys::InstalledKeys;
use crate::issuers::issuer_keys::IssuerKeys;
use crate::issuers::token_cache::TokenCacheConfig;
use postern_http::request::received;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const NOW: i64 = 1_800_000_000;

fn rules() -> AuthPolicy {
    rules_for(None)
}

/// Returns rules with a header for each of these claims.
fn rules_with(claims: &[&str]) -> AuthPolicy {
    let header = UserHeader::new("X-Current-User", 100).unwrap();
    let with = |header: UserHeader, claim: &&str| header.with_claim(claim, None).unwrap();
    let header = claims.iter().fold(header, with);
    let rules = rules();
    AuthPolicy::new(rules.interceptor, rules.issuers, header)
}

fn rules_for(issuer: Option<&str>) -> AuthPolicy {
    let policy = VerificationPolicy {
        issuer: issuer.map_or(RequiredIssuer::Any, |it| RequiredIssuer::Is(it.to_owned())),
        leeway_seconds: 30,
        ..VerificationPolicy::default()
    };
    let only = Issuer {
        policy,
        key_set: KeySetIndex(0),
        token_header: None,
        users: UserNames::default(),
    };
    AuthPolicy::new(
        Interceptor::new(
            "/orders".parse().unwrap(),
            PassList::parse(["/static/**"]).unwrap(),
            1000,
        ),
        Issuers::new(vec![only]),
        UserHeader::new("X-Current-User", 100).unwrap(),
    )
}

fn keys() -> CurrentKeys {
    let keys = CurrentKeys::new(
        TokenCacheConfig {
            bytes: 1_000_000,
            ..TokenCacheConfig::default()
        },
        None,
        None,
    );
    install(&keys, SECRET);
    keys
}

fn install(keys: &CurrentKeys, secret: &str) {
    let key = VerificationKey::parse(SigningType::Hmac, secret).unwrap();
    keys.install(KeySet::nameless(key), Instant::now());
}

fn token(nick_name: &str) -> String {
    token_of(&json!({"username": "ada", "nickName": nick_name, "userId": "1", "exp": NOW + 60}))
}

fn token_of(claims: &Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let header = Header::new(jsonwebtoken::Algorithm::HS256);
    format!(
        "Bearer {}",
        jsonwebtoken::encode(&header, claims, &key).unwrap()
    )
}

fn head_of(text: &str) -> ReceivedHead {
    let head = received::take(&mut text.as_bytes().into());
    head.unwrap().unwrap()
}

fn client() -> Client {
    Client::new(None, false, &TrustedProxies::default())
}

fn authorize(
    target: &str,
    fields: &[(&str, &str)],
    keys: Option<&CurrentKeys>,
) -> Result<Decision, Rejection> {
    authorize_under(&rules(), NOW, target, fields, keys)
}

fn authorize_under(
    rules: &AuthPolicy,
    now: i64,
    target: &str,
    fields: &[(&str, &str)],
    keys: Option<&CurrentKeys>,
) -> Result<Decision, Rejection> {
    let fields = fields.iter();
    let fields: String = fields
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let head = head_of(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let keys = keys.map(CurrentKeys::load);
    let state = keys.as_ref().and_then(|keys| keys.as_deref());
    let keys = state.ok_or(Rejection::AuthKeysUnavailable);
    let decision = rules.authorize(&head, &client(), keys, now);
    decision.map_err(|rejected| rejected.rejection)
}

#[test]
fn trace_and_connect_are_rejected_after_bad_framing() {
    for method in ["TRACE", "CONNECT"] {
        for (field, rejected) in [
            ("", InvalidRequest::MethodNotAllowed),
            ("Content_Length: 3\r\n", InvalidRequest::Framing),
        ] {
            let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n{field}\r\n");
            let head = head_of(&head);
            assert_eq!(head.checked_target(), Err(rejected), "{method}");
        }
        let request = http::Request::builder().method(method).uri("a:443");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let stream = ReceivedHead::from_stream(parts, false);
        let rejected = Err(InvalidRequest::MethodNotAllowed);
        assert_eq!(stream.checked_target(), rejected, "{method}");
    }
}

const PATHS: [&str; 2] = ["/orders/1", "/orders/current/user/details"];

/// Two issuers with a key set each: `strict` grants no leeway and takes no token without expiry.
struct TwoIssuers {
    rules: AuthPolicy,
    keys: IssuerKeys,
}

impl TwoIssuers {
    fn new() -> Self {
        let issuer = |key_set, name: &str, leeway_seconds, accept_no_expiry| Issuer {
            policy: VerificationPolicy {
                issuer: RequiredIssuer::Is(name.to_owned()),
                leeway_seconds,
                accept_no_expiry,
                ..VerificationPolicy::default()
            },
            key_set: KeySetIndex(key_set),
            token_header: None,
            users: UserNames::default(),
        };
        let issuers = vec![
            issuer(0, "strict", 0, false),
            issuer(1, "lenient", 30, true),
            issuer(1, "lenient-tenant", 30, true),
        ];
        let (one, header) = (rules(), UserHeader::new("X-Current-User", 100).unwrap());
        let rules = AuthPolicy::new(one.interceptor, Issuers::new(issuers), header);
        let keys = IssuerKeys::new(vec![Arc::new(keys()), Arc::new(keys())], None);
        Self { rules, keys }
    }

    fn authorize(&self, now: i64, token: &str) -> Result<Forward, Rejection> {
        let text = format!("GET /orders/1 HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\n\r\n");
        let keys = self.keys.as_of(Instant::now());
        let decision = self.rules.authorize(&head_of(&text), &client(), keys, now);
        match decision.map_err(|rejected| rejected.rejection)? {
            Decision::Forward(forward) => Ok(forward),
            other => unreachable!("{other:?}"),
        }
    }
}

#[test]
fn a_fresh_and_a_cached_token_have_the_times_of_their_issuer() {
    const EXPIRY: i64 = NOW + 60;
    let (expired, early) = (Rejection::TokenExpired, Rejection::TokenNotYetValid);
    for (issuer, now, expires_at, expected) in [
        ("strict", EXPIRY - 1, Some(EXPIRY), Ok(Some(EXPIRY))),
        ("strict", EXPIRY, Some(EXPIRY), Err(expired)),
        ("strict", NOW - 1, Some(EXPIRY), Err(early)),
        ("strict", NOW, None, Err(Rejection::TokenClaimMissing)),
        ("lenient", EXPIRY + 29, Some(EXPIRY), Ok(Some(EXPIRY + 30))),
        ("lenient", EXPIRY + 30, Some(EXPIRY), Err(expired)),
        ("lenient", NOW - 30, Some(EXPIRY), Ok(Some(EXPIRY + 30))),
        ("lenient", NOW - 31, Some(EXPIRY), Err(early)),
        ("lenient", NOW, None, Ok(None)),
        (
            "lenient-tenant",
            EXPIRY,
            Some(EXPIRY),
            Ok(Some(EXPIRY + 30)),
        ),
    ] {
        let mut claims = json!({"iss": issuer, "username": "ada", "userId": "1", "nbf": NOW});
        if let Some(expires_at) = expires_at {
            claims["exp"] = json!(expires_at);
        }
        let token = token_of(&claims);
        let sidecar = TwoIssuers::new();
        let fresh = sidecar.authorize(now, &token);
        assert_eq!(fresh.map(|it| it.ends_at), expected, "{issuer} {now} fresh");
        // Remembered while it is valid, where it ever is.
        let is_remembered = sidecar.authorize(NOW, &token).is_ok();
        let cached = sidecar.authorize(now, &token);
        let hits = sidecar.keys.iter().map(|keys| {
            let counters = &keys.token_cache().counters;
            counters.token_cache_hits.get()
        });
        assert_eq!(hits.sum::<u64>() > 0, is_remembered, "{issuer} {now}");
        assert_eq!(
            cached.map(|it| it.ends_at),
            expected,
            "{issuer} {now} cached"
        );
    }
}

#[test]
fn tokens_cached_under_other_rules_do_not_count() {
    let token = token_of(&json!(
        {"iss": "auth", "username": "ada", "userId": "1", "exp": NOW + 60}
    ));
    let (keys, fields) = (keys(), [("Authorization", token.as_str())]);
    let following = |former: &AuthPolicy, issuer| {
        let mut rules = rules_for(Some(issuer));
        rules.next_generation(former);
        rules
    };
    let first = rules_for(Some("auth"));
    let same = following(&first, "auth");
    let other = following(&same, "elsewhere");
    let again = following(&other, "auth");
    let hits = || keys.token_cache().counters.token_cache_hits.get();
    for (rules, rejection, expected_hits) in [
        (&first, None, 0),
        (&same, None, 1),
        (&other, Some(Rejection::TokenIssuer), 1),
        // A request that began before the change.
        (&first, None, 2),
        (&other, Some(Rejection::TokenIssuer), 2),
        (&again, None, 2),
        (&again, None, 3),
        (&other, Some(Rejection::TokenIssuer), 3),
    ] {
        let decision = authorize_under(rules, NOW, PATHS[0], &fields, Some(&keys));
        assert_eq!((decision.err(), hits()), (rejection, expected_hits));
    }
}

#[test]
fn identities_made_for_other_headers_do_not_count() {
    let (keys, token) = (keys(), token("Ada"));
    let fields = [("Authorization", token.as_str())];
    let following = |former: &AuthPolicy, claims: &[&str]| {
        let mut rules = rules_with(claims);
        rules.next_generation(former);
        rules
    };
    let first = rules_with(&[]);
    let one = following(&first, &["X-Id=userId"]);
    let other = following(&one, &["X-Id=username"]);
    for (rules, claims) in [(&first, 0), (&one, 1), (&other, 1), (&one, 1), (&first, 0)] {
        let misses = keys.token_cache().counters.token_cache_misses.get();
        for path in [PATHS[0], PATHS[0], PATHS[1]] {
            match authorize_under(rules, NOW, path, &fields, Some(&keys)).unwrap() {
                Decision::Forward(forward) => {
                    assert_eq!(forward.verified.unwrap().identity.claims(), claims);
                }
                other => assert!(matches!(other, Decision::Respond(_)), "{other:?}"),
            }
        }
        assert_eq!(
            keys.token_cache().counters.token_cache_misses.get(),
            misses + 1
        );
    }
}

#[test]
fn rejected_tokens_and_oversize_users_are_not_cached() {
    let keys = keys();
    let expired = token_of(&json!({"username": "ada", "userId": "1", "exp": NOW - 60}));
    let too_large = token(&"\u{7ba1}".repeat(20));
    let forged = format!("{}x", token("Ada"));
    for (token, details_rejected) in [(expired, true), (too_large, false), (forged, true)] {
        let fields = [("Authorization", token.as_str())];
        for _ in 0..2 {
            assert!(authorize(PATHS[0], &fields, Some(&keys)).is_err());
            let details = authorize(PATHS[1], &fields, Some(&keys));
            assert_eq!(details.is_err(), details_rejected);
        }
    }
    assert_eq!(keys.token_cache().counters.token_cache_hits.get(), 0);
    assert_eq!(keys.load().as_deref().unwrap().verified_tokens().bytes(), 0);
}

/// Returns rules that the account of the tokens satisfies, one of them for each path.
fn access_rules(count: usize) -> AccessRules {
    let rule = |number: usize| {
        let paths = if number == 0 {
            "/**".to_owned()
        } else {
            format!("/area{number}/**")
        };
        let claim = RequiredClaim {
            text: "username".to_owned(),
            name: "username".parse().unwrap(),
            values: vec!["ada".into()],
            by_words: false,
        };
        Rule {
            name: number.to_string(),
            methods: Methods::default(),
            paths: vec![paths.parse().unwrap()],
            requirement: Requirement {
                scope: Vec::new(),
                claims: vec![claim],
            },
        }
    };
    AccessRules::new((0..count).map(rule).collect(), Unmatched::Token)
}

#[test]
fn a_repeated_request_allocates_nothing() {
    let with_claims = rules_with(&["X-User-Id=userId", "X-Account=username", "X-None=none"]);
    let with_rules = rules().with_access_rules(access_rules(100));
    for rules in [rules(), with_claims, with_rules] {
        nothing_is_allocated_again(&rules);
    }
}

fn nothing_is_allocated_again(rules: &AuthPolicy) {
    let (keys, token) = (keys(), token("Ada"));
    let keys = keys.load();
    let head = head_of(&format!(
        "GET /orders/1?a=b HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nAuthorization: {token}\r\n\r\n"
    ));
    let client = client();
    let authorized = || {
        let keys = keys.as_deref().ok_or(Rejection::AuthKeysUnavailable);
        rules.authorize(&head, &client, keys, NOW).map(drop)
    };
    assert_eq!(authorized(), Ok(()));
    let again = allocation_counter::measure(|| assert_eq!(authorized(), Ok(())));
    assert_eq!(again.count_total, 0);
}

/// The keys of the only issuer.
impl KeysByIssuer for Result<&InstalledKeys, Rejection> {
    fn with_keys<T>(
        &self,
        _: KeySetIndex,
        action: impl FnOnce(Result<&InstalledKeys, Rejection>) -> T,
    ) -> T {
        action(*self)
    }
}
