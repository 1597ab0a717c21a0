//! Bound tokens with and without what they are bound to: each scheme, place and proof.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use clap::Parser;
use postern_http::request::received;
use postern_token::digest::sha256;
use postern_token::keys::signing_type::SigningType;
use postern_token::keys::{KeySet, KeySetIndex, VerificationKey};
use postern_token::policy::{BoundTokens, RequiredIssuer, VerificationPolicy};
use postern_transport::net::client_address::TrustedProxies;
use serde_json::{Value, json};
use token_corpus::keys::Algorithm;
use token_corpus::proof_rows::{ProofRow, ProofSetting};
use token_corpus::token_forge::Forge;

use super::*;
use crate::cli::{Cli, Command};
use crate::config::Config;
use crate::decision::decided::Decision;
use crate::decision::issuers::{Issuer, Issuers};
use crate::identity::client_certificate::tests::RFC_9440;
use crate::issuers::current::CurrentKeys;
use crate::issuers::token_cache::TokenCacheConfig;

const NOW: i64 = 1_800_000_000;
const CERTIFICATE: Digest = [7; 32];

/// The issuer, the key of a client, and a sidecar that verifies proofs.
struct Bound {
    issuer: Forge,
    client: Forge,
    jkt: String,
    policy: AuthPolicy,
    keys: CurrentKeys,
}

impl Bound {
    fn new(options: &[&str]) -> Self {
        let issuer = Forge::new(Algorithm::ES256);
        let client = issuer.meant_for(Algorithm::ES256);
        let keys = CurrentKeys::new(
            TokenCacheConfig {
                bytes: 1_000_000,
                ..TokenCacheConfig::default()
            },
            None,
            None,
        );
        let served = issuer.trusted().served();
        let key = VerificationKey::parse(SigningType::Ecdsa, &served).unwrap();
        keys.install(KeySet::nameless(key), Instant::now());
        Self {
            jkt: client.trusted().thumbprint(),
            policy: policy(options),
            issuer,
            client,
            keys,
        }
    }

    fn token(&self, cnf: &Value) -> String {
        let claims = json!({"cnf": cnf, "aud": "https://api.example/orders"});
        self.issuer.token(NOW, &claims)
    }

    /// Returns the fields with a token of this scheme, and a proof with changes to a good one.
    fn fields(&self, scheme: &str, token: &str, url: &str, change: &Value) -> String {
        let row = ProofRow::changed("x", change);
        let setting = ProofSetting {
            method: "GET",
            url,
            token: &sha256(token.as_bytes()),
            now: NOW,
        };
        let proof = String::from_utf8(row.field(&self.client, setting)).unwrap();
        format!("Authorization: {scheme} {token}\r\nDPoP: {proof}\r\n")
    }

    fn authorize(&self, path: &str, fields: &str, client: &Client) -> String {
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let head = received::take(&mut text.as_bytes().into())
            .unwrap()
            .unwrap();
        let state = self.keys.load();
        let keys = state.as_deref().ok_or(Rejection::AuthKeysUnavailable);
        match self.policy.authorize(&head, client, keys, NOW) {
            Ok(Decision::Forward(forward)) if forward.verified.is_some() => "accepted".to_owned(),
            Ok(_) => "something else".to_owned(),
            Err(rejected) => rejected.rejection.reason().to_owned(),
        }
    }
}

fn policy(options: &[&str]) -> AuthPolicy {
    let line = "sidecar serve --upstream=http://127.0.0.1:1 --auth-server=http://127.0.0.1:2/auth \
        --app-id=x --app-secret=1234567890123456 --signing-type=ecdsa --audience=https://api.example/orders \
        --resource=https://api.example/orders --trusted-proxy=10.0.0.0/8 --token-cookie=t";
    let cli = Cli::try_parse_from(line.split_whitespace().chain(options.iter().copied())).unwrap();
    let Command::Serve(args) = cli.command else {
        unreachable!("the command line above");
    };
    Config::new(&args).unwrap().rules.auth_policy
}

fn client(address: &str, certificate: Option<Digest>) -> Client {
    let proxies = TrustedProxies::new(vec!["10.0.0.0/8".parse().unwrap()]);
    Client::new(address.parse().ok(), true, &proxies).with_certificate(certificate)
}

#[test]
fn a_bound_token_counts_only_with_all_that_it_is_bound_to() {
    let bound = Bound::new(&[]);
    let jkt = json!({"jkt": bound.jkt});
    let x5t = json!({"x5t#S256": URL_SAFE_NO_PAD.encode(CERTIFICATE)});
    let both = json!({"jkt": bound.jkt, "x5t#S256": URL_SAFE_NO_PAD.encode(CERTIFICATE)});
    let of_other = json!({"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"});
    let other_and_certificate = json!({"jkt": of_other["jkt"], "x5t#S256": x5t["x5t#S256"]});
    let (own, other) = (Some(CERTIFICATE), Some([8; 32]));
    for (number, (cnf, scheme, certificate, expected)) in [
        (&Value::Null, "Bearer", None, "accepted"),
        (&Value::Null, "Bearer", own, "accepted"),
        (&Value::Null, "DPoP", None, "token_bound"),
        (&jkt, "DPoP", None, "accepted"),
        (&jkt, "dpop", None, "accepted"),
        (&jkt, "Bearer", None, "token_bound"),
        (&of_other, "DPoP", None, "proof_key_other"),
        (&x5t, "Bearer", own, "accepted"),
        (&x5t, "Bearer", other, "certificate_other"),
        (&x5t, "Bearer", None, "certificate_missing"),
        (&x5t, "DPoP", own, "token_bound"),
        (&both, "DPoP", own, "accepted"),
        (&both, "DPoP", other, "token_bound"),
        (&both, "DPoP", None, "token_bound"),
        (&both, "Bearer", own, "token_bound"),
        (&other_and_certificate, "DPoP", own, "token_bound"),
    ]
    .into_iter()
    .enumerate()
    {
        let client = client("192.0.2.1", certificate);
        let token = bound.token(cnf);
        // The first time it is verified, then it is in the cache.
        for again in 0..3 {
            let id = json!({"jti": format!("{number} {again}")});
            let url = "https://api.example/orders/1";
            let fields = bound.fields(scheme, &token, url, &id);
            let found = bound.authorize("/orders/1", &fields, &client);
            assert_eq!(found, expected, "{cnf} {scheme} {again}");
        }
        // It is in the cache by now, and is compared again.
        let without = format!("Authorization: Bearer {token}\r\n");
        let found = bound.authorize("/orders/1", &without, &self::client("192.0.2.1", None));
        let expected = match cnf {
            Value::Null => "accepted",
            cnf if *cnf == x5t => "certificate_missing",
            _ => "token_bound",
        };
        assert_eq!(found, expected, "{cnf}");
        let cookie = format!("Cookie: t={token}\r\n");
        let expected = if cnf.is_null() {
            "accepted"
        } else {
            "token_bound"
        };
        let found = bound.authorize("/orders/1", &cookie, &client);
        assert_eq!(found, expected, "{cnf} in a cookie");
    }
}

#[test]
fn a_fresh_and_a_cached_token_need_the_proof_of_their_issuer() {
    let mut bound = Bound::new(&[]);
    let only = bound.policy.issuers.only().unwrap().clone();
    let issuer = |key_set, name: &str, leeway_seconds, bound_tokens| Issuer {
        policy: VerificationPolicy {
            issuer: RequiredIssuer::Is(name.to_owned()),
            leeway_seconds,
            bound_tokens,
            ..only.policy.clone()
        },
        key_set: KeySetIndex(key_set),
        ..only.clone()
    };
    bound.policy.issuers = Issuers::new(vec![
        issuer(0, "strict", 0, BoundTokens::Checked),
        issuer(1, "lenient", 30, BoundTokens::Checked),
        issuer(2, "unchecked", 0, BoundTokens::Unchecked),
        issuer(3, "unbound", 0, BoundTokens::Rejected),
    ]);
    let (client, url) = (client("192.0.2.1", None), "https://api.example/orders/1");
    for (name, scheme, issued_at, expected) in [
        ("strict", "DPoP", NOW, "accepted"),
        ("strict", "DPoP", NOW + 1, "proof_time"),
        ("strict", "Bearer", NOW, "token_bound"),
        ("lenient", "DPoP", NOW + 30, "accepted"),
        ("lenient", "DPoP", NOW + 31, "proof_time"),
        ("unchecked", "Bearer", NOW, "accepted"),
        ("unbound", "DPoP", NOW, "token_bound"),
        ("unbound", "Bearer", NOW, "token_bound"),
    ] {
        let claims = json!({
            "iss": name, "cnf": {"jkt": bound.jkt}, "aud": "https://api.example/orders", "jti": scheme,
            "issued": issued_at,
        });
        let token = bound.issuer.token(NOW, &claims);
        for time in ["fresh", "cached"] {
            let change = json!({"jti": format!("{name} {issued_at} {time}"), "iat": issued_at});
            let fields = bound.fields(scheme, &token, url, &change);
            let found = bound.authorize("/orders/1", &fields, &client);
            assert_eq!(found, expected, "{name} {scheme} {issued_at} {time}");
            // Remembered now, where it ever is.
            let good = bound.fields(
                "DPoP",
                &token,
                url,
                &json!({"jti": format!("{change} good")}),
            );
            bound.authorize("/orders/1", &good, &client);
        }
    }
}

#[test]
fn rfc_9449_4_3_item_9_the_url_is_at_a_resource() {
    let bound = Bound::new(&[]);
    let token = bound.token(&json!({"jkt": bound.jkt}));
    let client = client("192.0.2.1", None);
    for (number, (path, url, expected)) in [
        ("/orders/1", "https://api.example/orders/1", "accepted"),
        ("/orders/1?a=b", "https://api.example/orders/1", "accepted"),
        ("/orders/%7e", "https://api.example/orders/~", "accepted"),
        (
            "/orders/\u{fc}\"<",
            "https://api.example/orders/%C3%BC%22%3C",
            "accepted",
        ),
        ("/1", "https://api.example/orders/1", "accepted"),
        ("/1", "https://api.example/1", "accepted"),
        ("/", "https://api.example/orders", "accepted"),
        ("/", "https://api.example/orders/", "accepted"),
        ("/orders", "https://api.example/orders", "accepted"),
        ("/orders/1", "https://api.example/1", "proof_target"),
        ("/orders/1", "https://api.example/orders/2", "proof_target"),
        ("/orders/1", "http://api.example/orders/1", "proof_target"),
        ("/orders/1", "https://a/orders/1", "proof_target"),
        (
            "/orders/1",
            "https://api.example:8443/orders/1",
            "proof_target",
        ),
        ("/1", "https://api.example/ordersx/1", "proof_target"),
        ("/x/1", "https://api.example/ordersx/1", "proof_target"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = json!({"jti": number.to_string()});
        let fields = bound.fields("DPoP", &token, url, &id) + "X-Forwarded-Host: a\r\n";
        assert_eq!(
            bound.authorize(path, &fields, &client),
            expected,
            "{path} {url}"
        );
    }
}

#[test]
fn a_trusted_proxy_alone_speaks_of_its_clients_certificate() {
    let bound = Bound::new(&["--client-cert-header=Client-Cert"]);
    let der = STANDARD.decode(RFC_9440.trim_matches(':')).unwrap();
    let cnf = json!({"x5t#S256": URL_SAFE_NO_PAD.encode(sha256(&der))});
    let token = format!("Authorization: Bearer {}\r\n", bound.token(&cnf));
    let own = &*format!("Client-Cert: {RFC_9440}\r\n");
    let other = &*format!("Client-Cert: Hash={}\r\n", "00".repeat(32));
    let proxys_own = Some(sha256(&der));
    for (address, certificate, fields, expected) in [
        ("10.0.0.1", None, own, "accepted"),
        ("10.0.0.1", None, "", "certificate_missing"),
        ("10.0.0.1", proxys_own, "", "certificate_missing"),
        ("10.0.0.1", None, "Client-Cert:\r\n", "certificate_missing"),
        ("10.0.0.1", proxys_own, other, "certificate_other"),
        (
            "10.0.0.1",
            None,
            "Client-Cert: der!\r\n",
            "certificate_unreadable",
        ),
        (
            "10.0.0.1",
            None,
            &(own.to_owned() + &other.to_lowercase()),
            "certificate_repeated",
        ),
        (
            "10.0.0.1",
            None,
            &own.replace('-', "_"),
            "certificate_missing",
        ),
        ("192.0.2.1", None, own, "certificate_missing"),
        ("192.0.2.1", Some(CERTIFICATE), own, "certificate_other"),
        (
            "192.0.2.1",
            proxys_own,
            &(other.to_owned() + "Client-Cert: x\r\n"),
            "accepted",
        ),
    ] {
        let fields = format!("{token}{fields}");
        let found = bound.authorize("/orders/1", &fields, &client(address, certificate));
        assert_eq!(found, expected, "{address} {fields}");
    }
}
