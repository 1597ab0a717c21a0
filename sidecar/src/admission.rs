//! The decision about one request: forward it, answer it with the current user, or refuse it.
//!
//! Pure: the request's head, the keys and the time come in as arguments. What is decided here is
//! carried out by [`crate::proxy`].

use std::sync::Arc;

use contract::bearer::Bearer;
use contract::claims::Validity;
use contract::envelope::{Envelope, MSG_OPERATION_SUCCEEDED};
use contract::interceptor::{Interceptor, Judgement, check_method};
use contract::observer::{Observer, Unobserved};
use contract::rejection::Rejection;
use contract::user_details::CurrentUserDetails;
use contract::verifier::VerificationPolicy;
use http::{HeaderMap, HeaderValue, Method, Uri, Version, header};

use crate::conversation::Conversation;
use crate::keys::current::KeyState;
use crate::target::Target;
use crate::token_places::is_forged_across_sites;
use crate::user_header::UserHeader;
use crate::verified_tokens::VerifiedToken;
use crate::{framing, http2_head, outcome::Outcome};

/// One request as it arrived.
#[derive(Clone, Copy)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) version: Version,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) wire: Wire<'a>,
    /// The target that Pingora would send to the service.
    pub(crate) target_to_send: &'a [u8],
}

/// What a head was before it was parsed, as far as that is known.
#[derive(Clone, Copy)]
pub(crate) enum Wire<'a> {
    /// The header block, byte for byte.
    Http1(&'a [u8]),
    /// Its fields came one by one.
    Http2 {
        /// `:authority`
        authority: Option<&'a [u8]>,
        /// Whether the stream goes on after the head.
        has_body: bool,
    },
}

/// What happens to a request that is not refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It goes to the service.
    Forward(Forward),
    /// It is answered here, with this body.
    UserDetails(Vec<u8>),
    /// A browser asks whether it may ask for the current user.
    Preflight,
}

/// How a request goes to the service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    /// The value of the user header; `None` on a pass-listed path.
    pub(crate) user: Option<HeaderValue>,
    /// The target to send where it is not the received one.
    pub(crate) target: Option<Uri>,
    /// A 101 of the service opens a tunnel only where this is a WebSocket.
    pub(crate) conversation: Conversation,
    /// Whether a body follows, which the service may leave unread.
    pub(crate) body: bool,
    /// Until when, in seconds since the epoch, a stream may go on; `None` without an expiry.
    pub(crate) ends_at: Option<i64>,
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

impl<'a> RequestHead<'a> {
    /// The target of a head whose shape is beyond doubt.
    fn checked_target(&self) -> Result<Target<'a>, Rejection> {
        match self.wire {
            Wire::Http1(raw) => framing::check(self.headers, raw)?,
            Wire::Http2 { authority, .. } => {
                http2_head::check(authority, self.target_to_send, self.headers)?;
            }
        }
        // Before the target, which is no path with CONNECT; after the framing, because the connection
        // lives on.
        check_method(self.method)?;
        match self.wire {
            Wire::Http1(raw) => Target::parse(raw, self.target_to_send),
            Wire::Http2 { .. } => Target::of_http_2(self.target_to_send),
        }
    }

    fn has_body(&self) -> bool {
        match self.wire {
            Wire::Http1(_) => framing::announces_body(self.headers),
            Wire::Http2 { has_body, .. } => has_body,
        }
    }
}

/// The rules that all requests are held to.
#[derive(Debug, Clone)]
pub(crate) struct AdmissionRules {
    pub(crate) interceptor: Interceptor,
    pub(crate) policy: VerificationPolicy,
    pub(crate) user_header: UserHeader,
    /// Whether the service can be asked to open one.
    pub(crate) carries_websockets: bool,
    /// Moves with every change of what a verified token comes to.
    generation: u64,
}

impl AdmissionRules {
    pub(crate) const fn new(
        interceptor: Interceptor,
        policy: VerificationPolicy,
        user_header: UserHeader,
    ) -> Self {
        Self {
            interceptor,
            policy,
            user_header,
            carries_websockets: true,
            generation: 0,
        }
    }

    /// They take the place of `former`. What was remembered under those counts on only where these
    /// would have come to the same.
    pub(crate) fn follow(&mut self, former: &Self) {
        let same = self.policy == former.policy && self.user_header == former.user_header;
        self.generation = former.generation + u64::from(!same);
    }

    /// Decides about `request` at `now` (seconds since the epoch). `keys` is a refusal until the
    /// first key was fetched, and again when it is too old; there is no placeholder that could be
    /// mistaken for one. What they verified before is not verified again, but held to its times.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn admit(
        &self,
        request: RequestHead<'_>,
        keys: Result<&KeyState, Rejection>,
        now: i64,
    ) -> Result<Admission, Rejection> {
        self.admit_observed(request, keys, now, &mut Unobserved)
    }

    /// The same while `observer` watches; nothing that was remembered spares it a step.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn admit_observed(
        &self,
        request: RequestHead<'_>,
        keys: Result<&KeyState, Rejection>,
        now: i64,
        observer: &mut impl Observer,
    ) -> Result<Admission, Rejection> {
        let RequestHead {
            method,
            version,
            headers,
            ..
        } = request;
        let target = observer.check("framing", request.checked_target())?;
        let conversation = Conversation::asked_for(method, version, headers);
        let is_websocket = conversation == Conversation::WebSocket;
        let judgement = self
            .interceptor
            .judge_observed(method, target.path(), headers, observer);
        let (user, ends_at) = match judgement {
            Judgement::Reject(rejection) => return Err(rejection),
            Judgement::UserDetails(token) => {
                let body = self.user_details(keys, token, now, observer)?;
                return Ok(Admission::UserDetails(body));
            }
            // Nobody vouches for what flows through the tunnel afterwards.
            Judgement::Pass if is_websocket => {
                return observer.check("upgrade", Err(Rejection::UpgradeNotAllowed));
            }
            Judgement::Pass => (None, None),
            Judgement::NeedsToken(_) if self.is_forged(&request, is_websocket) => {
                return observer.check("cross_site", Err(Rejection::CrossSite));
            }
            Judgement::NeedsToken(token) => {
                let verified = self.verified(keys, token, now, observer)?;
                if is_websocket && !self.carries_websockets {
                    return observer.check("upgrade", Err(Rejection::UpgradeNotAllowed));
                }
                (Some(verified.user), verified.validity.expires_at)
            }
            Judgement::Preflight {
                of_user_details: true,
            } => return Ok(Admission::Preflight),
            Judgement::Preflight { .. } => (None, None),
        };
        Ok(Admission::Forward(Forward {
            user,
            target: target.replacement()?,
            conversation,
            body: request.has_body(),
            ends_at: ends_at
                .map(|expiry| expiry.saturating_add(i64::from(self.policy.leeway_seconds))),
        }))
    }

    fn is_forged(&self, request: &RequestHead<'_>, is_websocket: bool) -> bool {
        let host = match request.wire {
            Wire::Http2 {
                authority: Some(authority),
                ..
            } => Some(authority),
            _ => request.headers.get(header::HOST).map(HeaderValue::as_bytes),
        };
        is_forged_across_sites(
            &self.interceptor,
            request.method,
            is_websocket,
            request.headers,
            host,
        )
    }

    /// The value of the user header, and how long it holds.
    fn verified<O: Observer>(
        &self,
        keys: Result<&KeyState, Rejection>,
        token: Bearer<'_>,
        now: i64,
        observer: &mut O,
    ) -> Result<VerifiedToken, Rejection> {
        let keys = observer.check("keys", keys)?;
        if let Some(known) = self.known::<O>(keys, token, now)? {
            return Ok(VerifiedToken::clone(&known));
        }
        let (details, validity) = self.verify(keys, token, now, observer)?;
        let user = observer.check("user_header", self.user_header.value(&details))?;
        let verified = self.to_remember(user, validity);
        keys.verified_tokens().remember(token, verified.clone());
        Ok(verified)
    }

    /// The answer's body.
    fn user_details<O: Observer>(
        &self,
        keys: Result<&KeyState, Rejection>,
        token: Bearer<'_>,
        now: i64,
        observer: &mut O,
    ) -> Result<Vec<u8>, Rejection> {
        let keys = observer.check("keys", keys)?;
        let details = match self.known::<O>(keys, token, now)? {
            Some(known) => self.user_header.user(&known.user)?,
            None => {
                let (details, validity) = self.verify(keys, token, now, observer)?;
                // Who is too large for the header is shown all the same.
                if let Ok(user) = self.user_header.value(&details) {
                    let verified = self.to_remember(user, validity);
                    keys.verified_tokens().remember(token, verified);
                }
                details
            }
        };
        Envelope::ok(MSG_OPERATION_SUCCEEDED, details)
            .to_json()
            .map_err(|_| Rejection::Internal)
    }

    const fn to_remember(&self, user: HeaderValue, validity: Validity) -> VerifiedToken {
        VerifiedToken {
            user,
            validity,
            rules: self.generation,
        }
    }

    fn verify(
        &self,
        keys: &KeyState,
        token: Bearer<'_>,
        now: i64,
        observer: &mut impl Observer,
    ) -> Result<(CurrentUserDetails, Validity), Rejection> {
        let claims = self
            .policy
            .verify_observed(keys.keys(), token, now, observer)?;
        let validity = claims.validity();
        Ok((claims.into_user_details(), validity))
    }

    /// What the keys at hand have verified before under these rules, if it may still be used.
    fn known<O: Observer>(
        &self,
        keys: &KeyState,
        token: Bearer<'_>,
        now: i64,
    ) -> Result<Option<Arc<VerifiedToken>>, Rejection> {
        if O::WATCHES {
            return Ok(None);
        }
        let Some(known) = keys.verified_tokens().find(token, self.generation) else {
            return Ok(None);
        };
        self.policy.check_times(known.validity, now)?;
        Ok(Some(known))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    #![expect(clippy::disallowed_methods, reason = "the test plays the issuer")]
    use std::time::Instant;

    use contract::keys::{KeySet, VerificationKey};
    use contract::path_patterns::PassList;
    use contract::signing_type::SigningType;
    use http::HeaderName;
    use jsonwebtoken::{EncodingKey, Header};
    use serde_json::{Value, json};

    use super::*;
    use crate::keys::current::CurrentKeys;
    use crate::verified_tokens::TokenCache;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const NOW: i64 = 1_800_000_000;

    fn rules() -> AdmissionRules {
        rules_for(None)
    }

    fn rules_for(issuer: Option<&str>) -> AdmissionRules {
        AdmissionRules::new(
            Interceptor::new(
                "/orders".parse().unwrap(),
                PassList::parse(["/static/**"]).unwrap(),
                1000,
            ),
            VerificationPolicy {
                issuer: issuer.map(ToOwned::to_owned),
                audience: None,
                leeway_seconds: 30,
                require_expiry: true,
                mapping: None,
            },
            UserHeader::new("X-Current-User", 100).unwrap(),
        )
    }

    fn keys() -> CurrentKeys {
        let keys = CurrentKeys::new(TokenCache {
            bytes: 1_000_000,
            ..TokenCache::default()
        });
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

    fn admit(
        target: &str,
        fields: &[(&str, &str)],
        keys: Option<&CurrentKeys>,
    ) -> Result<Admission, Rejection> {
        admit_at(NOW, target, fields, keys)
    }

    fn admit_at(
        now: i64,
        target: &str,
        fields: &[(&str, &str)],
        keys: Option<&CurrentKeys>,
    ) -> Result<Admission, Rejection> {
        admit_under(&rules(), now, target, fields, keys)
    }

    fn admit_under(
        rules: &AdmissionRules,
        now: i64,
        target: &str,
        fields: &[(&str, &str)],
        keys: Option<&CurrentKeys>,
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
            wire: Wire::Http1(raw.as_bytes()),
            target_to_send: target.as_bytes(),
        };
        let keys = keys.map(CurrentKeys::load);
        let state = keys.as_ref().and_then(|keys| keys.as_deref());
        rules.admit(head, state.ok_or(Rejection::AuthKeysUnavailable), now)
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
            Admission::Preflight => None,
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
            Ok(Admission::Forward(forward)) => {
                assert_eq!(forward.conversation, Conversation::WebSocket);
            }
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
    fn trace_and_connect_are_allowed_nowhere_and_bad_framing_comes_first() {
        let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("a"))]);
        let ambiguous = b"TRACE / HTTP/1.1\r\nContent_Length: 3\r\n\r\n";
        let stream = Wire::Http2 {
            authority: Some(b"a"),
            has_body: false,
        };
        for method in [Method::TRACE, Method::CONNECT] {
            for (wire, refused) in [
                (Wire::Http1(b"\r\n"), Rejection::MethodNotAllowed),
                (stream, Rejection::MethodNotAllowed),
                (Wire::Http1(ambiguous), Rejection::RequestFraming),
            ] {
                let head = RequestHead {
                    method: &method,
                    version: Version::HTTP_11,
                    headers: &headers,
                    wire,
                    target_to_send: b"a:443",
                };
                assert_eq!(head.checked_target(), Err(refused), "{method}");
            }
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

    const PATHS: [&str; 2] = ["/orders/1", "/orders/current/user/details"];

    #[test]
    fn a_repeated_token_is_found_and_gives_the_same_answers() {
        let (keys, token) = (keys(), token("Ad\u{e4}"));
        let fields = [("Authorization", token.as_str())];
        let [fresh, details] = PATHS.map(|path| admit(path, &fields, Some(&keys)));
        let hits = || keys.token_cache().counters.hits.get();
        assert_eq!(hits(), 1, "the second path");
        for (path, first) in PATHS.into_iter().zip([fresh, details]) {
            assert_eq!(admit(path, &fields, Some(&keys)), first, "{path}");
        }
        assert_eq!(hits(), 3);
    }

    #[test]
    fn a_remembered_token_is_held_to_its_times() {
        let keys = keys();
        let token =
            token_of(&json!({"username": "ada", "userId": "1", "nbf": NOW - 60, "exp": NOW + 60}));
        let fields = [("Authorization", token.as_str())];
        for (now, expected) in [
            (NOW, None),
            (NOW + 89, None),
            (NOW + 90, Some(Rejection::TokenExpired)),
            (NOW - 90, None),
            (NOW - 91, Some(Rejection::TokenNotYetValid)),
        ] {
            for path in PATHS {
                let admission = admit_at(now, path, &fields, Some(&keys));
                assert_eq!(admission.err(), expected, "{now} {path}");
            }
        }
        assert_eq!(keys.token_cache().counters.misses.get(), 1);
    }

    #[test]
    fn what_other_keys_have_verified_does_not_count() {
        let (keys, token) = (keys(), token("Ada"));
        let fields = [("Authorization", token.as_str())];
        let admitted = |keys| admit("/orders/1", &fields, Some(keys)).err();
        assert_eq!(admitted(&keys), None);
        install(&keys, SECRET);
        assert_eq!(admitted(&keys), None);
        assert_eq!(keys.token_cache().counters.hits.get(), 1, "the same key");
        install(&keys, &"x".repeat(32));
        assert_eq!(admitted(&keys), Some(Rejection::TokenSignature));
        install(&keys, SECRET);
        assert_eq!(admitted(&keys), None);
        assert_eq!(keys.token_cache().counters.misses.get(), 3);
    }

    #[test]
    fn what_other_rules_have_verified_does_not_count_however_late_it_is_remembered() {
        let token = token_of(&json!(
            {"iss": "auth", "username": "ada", "userId": "1", "exp": NOW + 60}
        ));
        let (keys, fields) = (keys(), [("Authorization", token.as_str())]);
        let following = |former: &AdmissionRules, issuer| {
            let mut rules = rules_for(Some(issuer));
            rules.follow(former);
            rules
        };
        let first = rules_for(Some("auth"));
        let same = following(&first, "auth");
        let other = following(&same, "elsewhere");
        let again = following(&other, "auth");
        let hits = || keys.token_cache().counters.hits.get();
        for (rules, refusal, expected_hits) in [
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
            let admission = admit_under(rules, NOW, PATHS[0], &fields, Some(&keys));
            assert_eq!((admission.err(), hits()), (refusal, expected_hits));
        }
    }

    #[test]
    fn a_refused_token_is_not_remembered_and_neither_is_a_user_who_does_not_fit() {
        let keys = keys();
        let expired = token_of(&json!({"username": "ada", "userId": "1", "exp": NOW - 60}));
        let too_large = token(&"\u{7ba1}".repeat(20));
        let forged = format!("{}x", token("Ada"));
        for (token, details_refused) in [(expired, true), (too_large, false), (forged, true)] {
            let fields = [("Authorization", token.as_str())];
            for _ in 0..2 {
                assert!(admit(PATHS[0], &fields, Some(&keys)).is_err());
                let details = admit(PATHS[1], &fields, Some(&keys));
                assert_eq!(details.is_err(), details_refused);
            }
        }
        assert_eq!(keys.token_cache().counters.hits.get(), 0);
        assert_eq!(keys.load().as_deref().unwrap().verified_tokens().bytes(), 0);
    }

    #[test]
    fn a_repeated_request_allocates_nothing() {
        let (rules, keys, token) = (rules(), keys(), token("Ada"));
        let keys = keys.load();
        let raw = format!(
            "GET /orders/1?a=b HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nAuthorization: {token}\r\n\r\n"
        );
        let headers = HeaderMap::from_iter([
            (header::HOST, HeaderValue::from_static("a")),
            (header::ACCEPT, HeaderValue::from_static("*/*")),
            (header::AUTHORIZATION, token.parse().unwrap()),
        ]);
        let head = RequestHead {
            method: &Method::GET,
            version: Version::HTTP_11,
            headers: &headers,
            wire: Wire::Http1(raw.as_bytes()),
            target_to_send: b"/orders/1?a=b",
        };
        let admit = || {
            let keys = keys.as_deref().ok_or(Rejection::AuthKeysUnavailable);
            rules.admit(head, keys, NOW).map(drop)
        };
        assert_eq!(admit(), Ok(()));
        let again = allocation_counter::measure(|| assert_eq!(admit(), Ok(())));
        assert_eq!(again.count_total, 0);
    }
}
