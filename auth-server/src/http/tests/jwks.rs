//! The handed-out keys verify the tokens.

use http::header::{ETAG, IF_NONE_MATCH, LINK};
use http::{HeaderMap, HeaderValue, StatusCode};
use postern_token::keys::KeySet;

use super::*;
use crate::keys::pair::SigningKeyPair;
use crate::keys::published::tests::holding_ring;
use crate::keys::ring::KeyRing;
use crate::keys::ring::rotation::RotationPolicy;

const JWKS: &str = "/auth/.well-known/jwks.json";
const KEY: &str = "/auth/client/user/secret/key?appId=a&appSecret=b";
const LEAD: i64 = 150;
const POLICY: RotationPolicy = RotationPolicy {
    lead: LEAD,
    keep: 1_000,
    every: None,
};

fn fresh(signing_type: SigningType) -> Arc<SigningKeyPair> {
    Arc::new(pair(signing_type))
}

fn serving_ring(ring: KeyRing) -> Router {
    router(holding_ring(ring))
}

async fn get(router: &Router, path: &str, etag: Option<&str>) -> (StatusCode, HeaderMap, Vec<u8>) {
    let mut request = request(Method::GET, path, None, "");
    if let Some(etag) = etag {
        let etag = HeaderValue::from_str(etag).unwrap();
        request.headers_mut().insert(IF_NONE_MATCH, etag);
    }
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    (parts.status, parts.headers, body)
}

#[tokio::test]
async fn the_set_lists_each_key_by_name_and_no_private_half() {
    for signing_type in [SigningType::Rsa, SigningType::Ecdsa] {
        let old = KeyRing::of(fresh(signing_type));
        let promoted = old
            .publish(fresh(signing_type), 0, LEAD)
            .advance(LEAD, &POLICY);
        let ring = promoted.publish(fresh(signing_type), LEAD, LEAD);
        let ids: Vec<_> = ring
            .verification_keys()
            .map(|key| key.id().clone())
            .collect();
        let (status, headers, body) = get(&serving_ring(ring), JWKS, None).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers[CONTENT_TYPE], "application/jwk-set+json");
        assert_eq!(
            headers[CACHE_CONTROL],
            "public, max-age=15, must-revalidate"
        );

        let algorithm = signing_type.algorithm();
        let set = KeySet::from_jwks(&body, &[algorithm]).unwrap();
        let listed: Vec<_> = set.keys().iter().map(|key| key.id().clone()).collect();
        assert_eq!(listed, ids);
        let json: Value = serde_json::from_slice(&body).unwrap();
        for key in json["keys"].as_array().unwrap() {
            assert_eq!(key["use"], "sig");
            assert_eq!(key["alg"], format!("{algorithm:?}"));
            for private in ["d", "p", "q", "dp", "dq", "qi", "oth", "k"] {
                assert!(key.get(private).is_none(), "{key}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_has_the_set_gets_304_until_it_changes() {
    let ring = KeyRing::of(fresh(SigningType::Ecdsa));
    let router = serving_ring(ring.clone());
    let (_, headers, _) = get(&router, JWKS, None).await;
    let etag = headers[ETAG].to_str().unwrap().to_owned();
    assert!(etag.starts_with('"'), "{etag}");

    let (status, headers, body) = get(&router, JWKS, Some(&etag)).await;
    assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0));
    assert_eq!(headers[ETAG], etag.as_str());
    assert_eq!(
        headers[CACHE_CONTROL],
        "public, max-age=15, must-revalidate"
    );

    let same_keys_elsewhere = serving_ring(ring.clone());
    assert_eq!(
        get(&same_keys_elsewhere, JWKS, None).await.1[ETAG],
        etag.as_str()
    );
    let rotated = serving_ring(ring.publish(fresh(SigningType::Ecdsa), 0, LEAD));
    assert_eq!(get(&rotated, JWKS, Some(&etag)).await.0, StatusCode::OK);
}

#[tokio::test]
async fn the_key_response_leads_to_the_set_and_stays_as_it_was() {
    let ring = KeyRing::of(fresh(SigningType::Ecdsa));
    let current = ring.current().public_key_string().to_owned();
    let ring = ring.publish(fresh(SigningType::Ecdsa), 0, LEAD);
    let router = serving_ring(ring);
    let (_, headers, _) = get(&router, KEY, None).await;
    assert_eq!(headers[LINK], "</auth/.well-known/jwks.json>; rel=\"jwks\"");
    let (_, envelope) = send(&router, request(Method::GET, KEY, None, "")).await;
    assert_eq!(envelope["msg"], "operation succeeded");
    assert_eq!(envelope["data"], current);
    let rejected = get(&router, "/auth/client/user/secret/key", None).await;
    assert!(!rejected.1.contains_key(LINK));
}

#[tokio::test]
async fn a_shared_secret_is_never_listed() {
    let router = serving_ring(KeyRing::of(fresh(SigningType::Hmac)));
    let (status, envelope) = send(&router, request(Method::GET, JWKS, None, "")).await;
    assert_eq!(
        (status, envelope["data"]["reason"].as_str()),
        (404, Some("not_found"))
    );
    let links = get(&router, KEY, None).await.1;
    let links: Vec<_> = links.get_all(LINK).iter().collect();
    let list = "</auth/.well-known/revocations>; rel=\"revocations\"";
    assert_eq!(links, [list]);
}

#[tokio::test]
async fn the_set_has_a_head_and_waits_for_the_store() {
    let head = request(Method::HEAD, JWKS, None, "");
    let response = serving().oneshot(head).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let without_key = router(LiveKeys::default());
    let (status, _) = send(&without_key, request(Method::GET, JWKS, None, "")).await;
    assert_eq!(status, 503);
}
