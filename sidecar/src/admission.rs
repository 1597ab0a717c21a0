//! The decision about one request: forward it, answer it with the current user, or refuse it.
//!
//! Pure: the request's head, the keys and the time come in as arguments. What is decided here is
//! carried out by [`crate::proxy`].

use contract::bearer::Bearer;
use contract::claims::Claims;
use contract::envelope::{Envelope, MSG_OPERATION_SUCCEEDED};
use contract::interceptor::{Interceptor, Judgement};
use contract::keys::KeySet;
use contract::rejection::Rejection;
use contract::verifier::VerificationPolicy;
use http::{HeaderMap, HeaderValue, Method, Uri, Version};

use crate::target::Target;
use crate::upgrade::asks_for_websocket;
use crate::user_header::UserHeader;
use crate::{framing, outcome::Outcome};

/// One request as it arrived.
#[derive(Clone, Copy)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) version: Version,
    pub(crate) headers: &'a HeaderMap,
    /// The header block, byte for byte.
    pub(crate) raw: &'a [u8],
    /// The target that Pingora would send to the service.
    pub(crate) target_to_send: &'a [u8],
}

/// What happens to a request that is not refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It goes to the service.
    Forward(Forward),
    /// It is answered here, with this body.
    UserDetails(Vec<u8>),
}

/// How a request goes to the service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    /// The value of the user header; `None` on a pass-listed path.
    pub(crate) user: Option<HeaderValue>,
    /// The target to send where it is not the received one.
    pub(crate) target: Option<Uri>,
    /// Whether a 101 of the service opens a tunnel.
    pub(crate) websocket: bool,
    /// Whether a body follows, which the service may leave unread.
    pub(crate) body: bool,
}

impl Forward {
    pub(crate) fn outcome(&self) -> Outcome {
        if self.user.is_some() {
            Outcome::Verified
        } else {
            Outcome::Passed
        }
    }
}

/// The rules that all requests are held to.
#[derive(Debug)]
pub(crate) struct AdmissionRules {
    pub(crate) interceptor: Interceptor,
    pub(crate) policy: VerificationPolicy,
    pub(crate) user_header: UserHeader,
}

impl AdmissionRules {
    /// Decides about `request` at `now` (seconds since the epoch). `keys` is `None` until the
    /// first key was fetched; there is no placeholder that could be mistaken for one.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn admit(
        &self,
        request: RequestHead<'_>,
        keys: Option<&KeySet>,
        now: i64,
    ) -> Result<Admission, Rejection> {
        let RequestHead {
            method,
            version,
            headers,
            ..
        } = request;
        framing::check(method, version, headers, request.raw)?;
        let target = Target::parse(request.raw, request.target_to_send)?;
        let websocket = asks_for_websocket(method, version, headers);
        let user = match self.interceptor.judge(method, target.path(), headers) {
            Judgement::Reject(rejection) => return Err(rejection),
            Judgement::UserDetails(token) => {
                let body = user_details(self.verify(keys, token, now)?)?;
                return Ok(Admission::UserDetails(body));
            }
            // Nobody vouches for what flows through the tunnel afterwards.
            Judgement::Pass if websocket => return Err(Rejection::UpgradeNotAllowed),
            Judgement::Pass => None,
            Judgement::NeedsToken(token) => {
                let claims = self.verify(keys, token, now)?;
                Some(self.user_header.value(&claims.into_user_details())?)
            }
        };
        Ok(Admission::Forward(Forward {
            user,
            target: target.replacement()?,
            websocket,
            body: framing::announces_body(headers),
        }))
    }

    fn verify(
        &self,
        keys: Option<&KeySet>,
        token: Bearer<'_>,
        now: i64,
    ) -> Result<Claims, Rejection> {
        let keys = keys.ok_or(Rejection::AuthKeysUnavailable)?;
        self.policy.verify_at(keys, token, now)
    }
}

fn user_details(claims: Claims) -> Result<Vec<u8>, Rejection> {
    Envelope::ok(MSG_OPERATION_SUCCEEDED, claims.into_user_details())
        .to_json()
        .map_err(|_| Rejection::Internal)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    #![expect(clippy::disallowed_methods, reason = "the test plays the issuer")]
    use contract::keys::VerificationKey;
    use contract::path_patterns::PassList;
    use contract::signing_type::SigningType;
    use http::HeaderName;
    use jsonwebtoken::{EncodingKey, Header};
    use serde_json::{Value, json};

    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const NOW: i64 = 1_800_000_000;

    fn rules() -> AdmissionRules {
        AdmissionRules {
            interceptor: Interceptor::new(
                "/orders".parse().unwrap(),
                PassList::parse(["/static/**"]).unwrap(),
                1000,
            ),
            policy: VerificationPolicy {
                issuer: None,
                audience: None,
                leeway_seconds: 30,
                require_expiry: true,
            },
            user_header: UserHeader::new("X-Current-User", 100).unwrap(),
        }
    }

    fn keys() -> KeySet {
        KeySet::nameless(VerificationKey::parse(SigningType::Hmac, SECRET).unwrap())
    }

    fn token(nick_name: &str) -> String {
        let claims =
            json!({"username": "ada", "nickName": nick_name, "userId": "1", "exp": NOW + 60});
        let key = EncodingKey::from_secret(SECRET.as_bytes());
        let header = Header::new(jsonwebtoken::Algorithm::HS256);
        format!(
            "Bearer {}",
            jsonwebtoken::encode(&header, &claims, &key).unwrap()
        )
    }

    fn admit(
        target: &str,
        fields: &[(&str, &str)],
        keys: Option<&KeySet>,
    ) -> Result<Admission, Rejection> {
        let mut raw = format!("GET {target} HTTP/1.1\r\nHost: a\r\n");
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("a"));
        for (name, value) in fields {
            raw += &format!("{name}: {value}\r\n");
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, value.parse().unwrap());
        }
        raw += "\r\n";
        let head = RequestHead {
            method: &Method::GET,
            version: Version::HTTP_11,
            headers: &headers,
            raw: raw.as_bytes(),
            target_to_send: target.as_bytes(),
        };
        rules().admit(head, keys, NOW)
    }

    const WEBSOCKET: [(&str, &str); 3] = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "x"),
    ];

    fn user(admission: Result<Admission, Rejection>) -> Option<Value> {
        match admission.unwrap() {
            Admission::Forward(forward) => {
                let value = forward.user?;
                Some(serde_json::from_slice(value.as_bytes()).unwrap())
            }
            Admission::UserDetails(body) => Some(serde_json::from_slice(&body).unwrap()),
        }
    }

    #[test]
    fn a_verified_request_goes_on_with_its_user() {
        let token = token("Ada");
        let admission = admit("/orders/1", &[("Authorization", &token)], Some(&keys()));
        assert_eq!(
            user(admission),
            Some(json!({"id": "1", "nickName": "Ada", "account": "ada"}))
        );
    }

    #[test]
    fn a_pass_listed_request_goes_on_without_a_user_whatever_it_carries() {
        let token = token("Ada");
        for field in [("Authorization", token.as_str()), ("Authorization", "junk")] {
            let admission = admit("/orders/static/a", &[field], Some(&keys()));
            assert_eq!(user(admission), None);
        }
    }

    #[test]
    fn the_user_details_are_answered_in_the_envelope() {
        let fields = [("Authorization", &*token("Ada"))];
        let answer = user(admit(
            "/orders/current/user/details",
            &fields,
            Some(&keys()),
        ))
        .unwrap();
        assert_eq!(answer["success"], true);
        assert_eq!(answer["data"]["account"], "ada");
        assert_eq!(answer["data"]["grade"], Value::Null);
    }

    #[test]
    fn without_a_key_the_pass_list_works_and_a_token_has_to_wait() {
        let fields = [("Authorization", &*token("Ada"))];
        assert_eq!(user(admit("/orders/static/a", &[], None)), None);
        for path in ["/orders/1", "/orders/current/user/details"] {
            assert_eq!(admit(path, &[], None), Err(Rejection::TokenMissing));
            assert_eq!(
                admit(path, &fields, None),
                Err(Rejection::AuthKeysUnavailable)
            );
        }
    }

    #[test]
    fn a_user_who_does_not_fit_is_refused() {
        let fields = [("Authorization", &*token(&"\u{7ba1}".repeat(20)))];
        assert_eq!(
            admit("/orders/1", &fields, Some(&keys())),
            Err(Rejection::IdentityTooLarge)
        );
    }

    #[test]
    fn only_a_verified_request_may_become_a_websocket() {
        let token = token("Ada");
        let verified = [WEBSOCKET.as_slice(), &[("Authorization", &token)]].concat();
        match admit("/orders/ws", &verified, Some(&keys())) {
            Ok(Admission::Forward(forward)) => assert!(forward.websocket),
            other => unreachable!("{other:?}"),
        }
        assert_eq!(
            admit("/orders/ws", &WEBSOCKET, Some(&keys())),
            Err(Rejection::TokenMissing)
        );
        assert_eq!(
            admit("/orders/static/ws", &WEBSOCKET, Some(&keys())),
            Err(Rejection::UpgradeNotAllowed)
        );
    }

    #[test]
    fn the_shape_is_checked_before_anything_else() {
        let framing = [("Content-Length", "3"), ("Content-Length", "3")];
        assert_eq!(
            admit("/orders/static/a", &framing, Some(&keys())),
            Err(Rejection::RequestFraming)
        );
        for target in ["*", "/orders/static/..", "/orders/static/a#b"] {
            assert_eq!(
                admit(target, &[], Some(&keys())),
                Err(Rejection::PathNotCanonical)
            );
        }
    }

    #[test]
    fn an_absolute_target_is_judged_and_sent_in_origin_form() {
        match admit("http://a/orders/static/a?b", &[], None) {
            Ok(Admission::Forward(forward)) => {
                assert_eq!(forward.target, Some(Uri::from_static("/orders/static/a?b")));
            }
            other => unreachable!("{other:?}"),
        }
        assert_eq!(
            admit("http://a/orders/1", &[], None),
            Err(Rejection::TokenMissing)
        );
    }
}
