//! Verification of one token: a pure function of keys, policy, token and time.

use crate::claims::{Claims, Validity};
use crate::compact::{CheckType, CompactToken, Header, check_type, decode, object};
use crate::invalid::{InvalidProof, InvalidToken};
use crate::keys::{KeySet, VerificationKey};
use crate::observer::{Observer, Unobserved};
use crate::policy::{BoundTokens, RequiredIssuer, VerificationPolicy};
use crate::possession::Binding;
use crate::sources::bearer::{Bearer, Scheme, TokenLocation};
use crate::strict_json::{Value, member};
use crate::unverified::detail;

/// The confirmation of RFC 7800 §3.1, whatever it holds but null.
const CONFIRMATION: &str = "cnf";

impl VerificationPolicy {
    /// Verifies `token` with `keys` at `now`, in seconds since the epoch.
    ///
    /// # Errors
    /// The first rule that the token breaks, in this order: form, header members, `cnf`, claims,
    /// `exp`, `nbf`, `iss`, `aud`, algorithm, key, signature. With newer keys it may hold:
    /// [`KeySet::may_be_outdated`].
    pub fn verify_at(
        &self,
        keys: &KeySet,
        token: Bearer<'_>,
        now: i64,
    ) -> Result<Claims, InvalidToken> {
        self.verify_observed(keys, token, now, &mut Unobserved)
    }

    /// Verifies as [`Self::verify_at`] does, and reports the steps to `observer`.
    ///
    /// # Errors
    /// The errors of [`Self::verify_at`].
    pub fn verify_observed<O: Observer>(
        &self,
        keys: &KeySet,
        token: Bearer<'_>,
        now: i64,
        observer: &mut O,
    ) -> Result<Claims, InvalidToken> {
        let verified = self.verify_each(keys, token, now, observer);
        if O::WATCHES && verified.is_ok() {
            for line in detail::chosen_claims(self, token.as_str()) {
                observer.learned("user", line);
            }
        }
        observer.explains(&verified, |invalid| {
            detail::describe(invalid, self, keys, token.as_str(), now)
        });
        verified
    }

    fn verify_each(
        &self,
        keys: &KeySet,
        bearer: Bearer<'_>,
        now: i64,
        observer: &mut impl Observer,
    ) -> Result<Claims, InvalidToken> {
        let token = observer.check("token_form", CompactToken::split(bearer.as_str()))?;
        let header = observer.check("token_header", Header::parse(token.header, check_type))?;
        // No key changes what the payload says, so none is searched for a token that it rejects. Before
        // the signature is checked it can do nothing else.
        let claims = observer.check("claims", self.parse_claims(token.payload))?;
        let presentation = self.check_presentation(claims.binding.as_ref(), bearer);
        observer.check("binding", presentation)?;
        observer.check("times", self.check_times(claims.validity(), now))?;
        self.check_parties(&claims, observer)?;
        let key = observer.check("signature", check_signature(keys, &header, &token))?;
        observer.learned("signed by", key.name());
        Ok(claims)
    }

    fn parse_claims(&self, payload: &str) -> Result<Claims, InvalidToken> {
        let members = object(payload)?;
        // Null says nothing, as in every other claim.
        let binding = match (member(&members, CONFIRMATION), self.bound_tokens) {
            (None, _) | (Some(_), BoundTokens::Unchecked) => None,
            (Some(_), BoundTokens::Rejected) => return Err(InvalidToken::Bound),
            (Some(confirmation), BoundTokens::Checked) => Some(Binding::from_claim(confirmation)?),
        };
        let claims = Claims::from_members(members, self.mapping.as_ref(), &self.extra_claims)?;
        Ok(Claims { binding, ..claims })
    }

    /// Checks that a token came by the scheme that its binding needs, and with a required proof.
    fn check_presentation(
        &self,
        binding: Option<&Binding>,
        token: Bearer<'_>,
    ) -> Result<(), InvalidToken> {
        // First, as a cached token is checked: its reason is the same.
        Binding::check_scheme(binding, token)?;
        let is_proven = token.location() == TokenLocation::Authorization(Scheme::Dpop);
        if self.requires_proof && !is_proven {
            return Err(InvalidProof::Missing.into());
        }
        Ok(())
    }

    /// Checks the times of a token at `now`, in seconds since the epoch.
    ///
    /// # Errors
    /// [`InvalidToken::ClaimMissing`] without a required `exp`, [`InvalidToken::Expired`],
    /// [`InvalidToken::NotYetValid`].
    pub fn check_times(&self, validity: Validity, now: i64) -> Result<(), InvalidToken> {
        let leeway = i64::from(self.leeway_seconds);
        match validity.expires_at {
            None if !self.accept_no_expiry => return Err(InvalidToken::ClaimMissing),
            // RFC 7519 §4.1.4: "on or after".
            Some(exp) if now >= exp.saturating_add(leeway) => return Err(InvalidToken::Expired),
            _ => {}
        }
        match validity.not_before {
            Some(nbf) if now < nbf.saturating_sub(leeway) => Err(InvalidToken::NotYetValid),
            _ => Ok(()),
        }
    }

    fn check_parties(
        &self,
        claims: &Claims,
        observer: &mut impl Observer,
    ) -> Result<(), InvalidToken> {
        if self.issuer == RequiredIssuer::Any {
            observer.skipped("issuer", "no issuer is required");
        } else {
            let is_issuer = self.issuer.accepts(claims.issuer.as_deref());
            observer.check("issuer", require(is_issuer, InvalidToken::Issuer))?;
        }
        let is_audience = self.audience.accepts(&claims.audience);
        observer.check("audience", require(is_audience, InvalidToken::Audience))
    }
}

fn require(holds: bool, otherwise: InvalidToken) -> Result<(), InvalidToken> {
    if holds { Ok(()) } else { Err(otherwise) }
}

/// Returns the payload of a compact JWS of one of `keys`. `check_type` gets the members of its header.
pub(super) fn verified_payload(
    keys: &KeySet,
    jws: &str,
    check_type: CheckType,
) -> Result<Vec<u8>, InvalidToken> {
    let token = CompactToken::split(jws)?;
    check_signature(keys, &Header::parse(token.header, check_type)?, &token)?;
    decode(token.payload)
}

/// Returns true if the header of a token, which may be forged, names the key that signed it.
pub fn names_key(token: &str) -> bool {
    let Ok(parts) = CompactToken::split(token) else {
        return false;
    };
    Header::parse(parts.header, |_| Ok(())).is_ok_and(|header| header.key_id.is_some())
}

/// Returns the `iss` that a token claims, before anything is verified. It may select the issuer
/// whose keys and rules decide, and nothing else; `None` where it is absent or not text.
///
/// # Errors
/// [`InvalidToken::Malformed`] for a payload that cannot be read.
pub fn unverified_issuer(token: Bearer<'_>) -> Result<Option<String>, InvalidToken> {
    let mut members = object(CompactToken::split(token.as_str())?.payload)?;
    Ok(match members.remove("iss") {
        Some(Value::String(issuer)) => Some(issuer),
        _ => None,
    })
}

/// Tries the keys of the token's `kid` and algorithm, and returns the key that signed the token.
fn check_signature<'k>(
    keys: &'k KeySet,
    header: &Header,
    token: &CompactToken<'_>,
) -> Result<&'k VerificationKey, InvalidToken> {
    // First: a token of an algorithm that no key may have starts no fetch of newer keys.
    if !keys.allows(header.algorithm) {
        return Err(InvalidToken::Algorithm);
    }
    // Callers fetch after this error: the key may be newer than the set.
    let mut candidates = keys.named_by(header.key_id.as_ref()).peekable();
    if candidates.peek().is_none() {
        return Err(InvalidToken::KeyUnknown);
    }
    // The key fixes the algorithm, and `alg` selects none (RFC 8725 §3.1).
    let is_for = |key: &&VerificationKey| key.algorithm() == header.algorithm;
    let mut usable = candidates.filter(is_for).peekable();
    if usable.peek().is_none() {
        return Err(InvalidToken::Algorithm);
    }
    let signature = decode(token.signature)?;
    usable
        .find(|key| key.verifies(token.signed, &signature))
        .ok_or(InvalidToken::Signature)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::{Value, json};
    use token_corpus::token_forge::{Forge, Signature, claims, encode, lay_over, signing_input};

    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jsonwebtoken::Algorithm;

    use super::*;
    use crate::claims::mapping::ClaimMapping;
    use crate::keys::signing_type::SigningType;
    use crate::observer::tests::Facts;
    use crate::policy::Audience;

    const NOW: i64 = 1_000_000;

    fn policy() -> VerificationPolicy {
        VerificationPolicy {
            leeway_seconds: 30,
            ..VerificationPolicy::default()
        }
    }

    /// Returns header and payload with good claims, `changes` laid over them.
    fn input(header: &Value, changes: &Value) -> String {
        let payload = claims(NOW, changes).to_string();
        signing_input(header.to_string().as_bytes(), payload.as_bytes())
    }

    #[test]
    fn the_claimed_issuer_is_one_text_or_none() {
        let claimed = |token: &str| unverified_issuer(Bearer::new(token)?);
        for (iss, expected) in [
            (json!("auth"), Some("auth")),
            (json!(""), Some("")),
            (json!(["auth"]), None),
            (json!({"auth": 1}), None),
            (Value::Null, None),
        ] {
            let token = input(&json!({"alg": "HS256"}), &json!({"iss": iss})) + ".x";
            assert_eq!(claimed(&token), Ok(expected.map(str::to_owned)));
        }
        let twice = URL_SAFE_NO_PAD.encode(r#"{"iss":"a","iss":"b"}"#);
        for malformed in ["a.b", "a.!.c", &format!("e30.{twice}.c"), "e30.W10.c"] {
            let rejected = Err(InvalidToken::Malformed);
            assert_eq!(claimed(malformed), rejected, "{malformed}");
        }
    }

    #[test]
    fn rfc_7519_4_1_3_a_token_for_another_audience_is_rejected() {
        let forge = Forge::new(token_corpus::keys::SigningType::Hmac);
        let key = VerificationKey::parse(SigningType::Hmac, &forge.trusted().served()).unwrap();
        let keys = KeySet::nameless(key);
        let ours = || vec!["orders".to_owned(), "shop".to_owned()];
        let named = Audience::OneOfOrNone(ours());
        let required = Audience::OneOf(ours());
        let nameless = Audience::default();
        let other = Some(InvalidToken::Audience);
        // For each: a verifier that has names, one that requires them, one without, the issuer.
        for (aud, expected) in [
            (Value::Null, [None, other, None, None]),
            (json!("orders"), [None, None, other, None]),
            (json!(["billing", "shop"]), [None, None, other, None]),
            (json!("billing"), [other, other, other, None]),
            (json!(["billing", "orders "]), [other, other, other, None]),
            (json!(""), [other; 4]),
            (json!([]), [other; 4]),
            (json!([""]), [other; 4]),
            (json!([null]), [other; 4]),
            (json!(["", "orders"]), [None, None, other, None]),
            (json!(7), [other; 4]),
            (json!(false), [other; 4]),
            (json!({"orders": 1}), [other; 4]),
            (json!(["orders", null]), [other; 4]),
            (json!(["orders", 7]), [other; 4]),
            (json!([["orders"]]), [other; 4]),
            (json!(["orders", "\u{fffd}"]), [other; 4]),
        ] {
            for typ in ["JWT", "at+jwt"] {
                let input = input(&json!({"alg": "HS256", "typ": typ}), &json!({"aud": aud}));
                let token = format!("{input}.{}", encode(&forge.sign(Signature::Good, &input)));
                let token = Bearer::new(&token).unwrap();
                let verifiers = [&named, &required, &nameless, &Audience::Any];
                let found = verifiers.map(|audience| {
                    let policy = VerificationPolicy {
                        audience: audience.clone(),
                        ..policy()
                    };
                    policy.verify_at(&keys, token, NOW).err()
                });
                assert_eq!(found, expected, "{typ} {aud}");
            }
        }
    }

    #[test]
    fn a_claim_of_the_wrong_type_is_named_with_what_it_holds() {
        let keys = KeySet::nameless_keys(Vec::new());
        let (text, number) = (
            "a text is expected",
            "a number of seconds within 64 bits is",
        );
        let of_contract: [(&str, Value, &str, &str); 17] = [
            ("username", json!(7), "is 7", text),
            ("username", json!(""), "is an empty text", text),
            ("userId", json!(["1"]), "is a list", text),
            (
                "userId",
                json!("\u{fffd}"),
                "is a text with half of a character",
                text,
            ),
            ("nickName", json!({"a": 1}), "is {\"a\":1}", text),
            ("iss", json!(["auth"]), "is a list", text),
            ("sub", json!(1), "is 1", text),
            ("jti", json!(false), "is true or false", text),
            ("exp", json!("tomorrow"), "is text", number),
            ("exp", json!([1]), "is a list", number),
            ("exp", json!(1e300), "is 1e+300", number),
            ("nbf", json!("1"), "is text", number),
            ("iat", json!(true), "is true or false", number),
            ("iat", json!(1e300), "is 1e+300", number),
            ("extraInfo", json!("x"), "is text", "an object of texts"),
            ("extraInfo", json!([]), "is a list", "an object of texts"),
            (
                "extraInfo",
                json!({"grade": 3}),
                "is {\"grade\":3}",
                "an object of texts",
            ),
        ];
        let of_others = [
            ("iss", json!(7), "is 7", text),
            ("exp", json!("tomorrow"), "is text", number),
            ("nbf", json!({}), "is {}", number),
        ];
        // A needed claim that stands before the others.
        let mapping = ClaimMapping::parse(["account=alias"]).ok();
        let of_contract = of_contract.map(|row| (None, row));
        let of_others = of_others.map(|row| (mapping.clone(), row));
        for (mapping, (claim, value, holds, expected)) in of_contract.into_iter().chain(of_others) {
            let policy = VerificationPolicy {
                mapping,
                ..policy()
            };
            let mut changes = json!({"extraInfo": {}, "nickName": "", "aud": ["a"]});
            // No error in another issuer's token.
            if policy.mapping.is_some() {
                changes =
                    json!({"sub": "1", "alias": "ada", "iat": "soon", "jti": 7, "extraInfo": 7});
            }
            changes[claim] = value;
            let token = input(&json!({"alg": "HS256"}), &changes) + ".c2ln";
            let (mut steps, token) = (Facts::default(), Bearer::new(&token).unwrap());
            let found = policy.verify_observed(&keys, token, NOW, &mut steps);
            assert_eq!(found, Err(InvalidToken::ClaimInvalid), "{claim}");
            let found = steps.0.remove("found").unwrap();
            assert!(
                found.starts_with(&format!("its `{claim}` {holds}")),
                "{found}"
            );
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn what_no_key_changes_is_decided_before_a_key_is_searched() {
        use InvalidToken::{
            Audience, Bound, ClaimInvalid, ClaimMissing, Expired, Issuer, KeyUnknown, Malformed,
            NotYetValid,
        };
        let policy = VerificationPolicy {
            issuer: RequiredIssuer::Is("auth".to_owned()),
            ..policy()
        };
        let key = VerificationKey::parse(SigningType::Hmac, &"k".repeat(32)).unwrap();
        let keys = KeySet::named(vec![key]);
        let header = json!({"alg": "HS256", "kid": "new"});
        for (claims, expected) in [
            (json!({}), KeyUnknown),
            (json!({"username": null}), ClaimMissing),
            (json!({"cnf": {}}), Bound),
            (json!({"iss": "other"}), Issuer),
            (json!({"iss": null}), Issuer),
            (json!({"iss": 7}), ClaimInvalid),
            (json!({"aud": "billing"}), Audience),
            (json!({"aud": 7}), Audience),
            (json!({"exp": 5}), Expired),
            (json!({"exp": "5"}), ClaimInvalid),
            (json!({"exp": null}), ClaimMissing),
            (json!({"nbf": NOW + 60}), NotYetValid),
        ] {
            let token = input(&header, &claims) + ".c2ln";
            let verified = policy.verify_at(&keys, Bearer::new(&token).unwrap(), NOW);
            assert_eq!(verified.err(), Some(expected), "{claims}");
        }
        let unreadable = signing_input(header.to_string().as_bytes(), b"{") + ".c2ln";
        let verified = policy.verify_at(&keys, Bearer::new(&unreadable).unwrap(), NOW);
        assert_eq!(verified.err(), Some(Malformed));
    }

    #[test]
    fn an_allowed_algorithm_without_a_key_needs_a_fresh_set() {
        let jwk = json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "known",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"});
        let set = json!({"keys": [jwk]}).to_string();
        let both = &[Algorithm::ES256, Algorithm::RS256][..];
        for (allowed, kid, expected) in [
            (both, json!({"kid": "new"}), InvalidToken::KeyUnknown),
            // The key is known, but for another algorithm.
            (both, json!({"kid": "known"}), InvalidToken::Algorithm),
            (both, json!({}), InvalidToken::Algorithm),
            (&both[..1], json!({"kid": "new"}), InvalidToken::Algorithm),
        ] {
            let keys = KeySet::from_jwks(set.as_bytes(), allowed).unwrap();
            let mut header = json!({"alg": "RS256", "typ": "JWT"});
            lay_over(&mut header, &kid);
            let token = input(&header, &json!({})) + ".c2ln";
            let verified = policy().verify_at(&keys, Bearer::new(&token).unwrap(), NOW);
            assert_eq!(verified.err(), Some(expected), "{kid} {allowed:?}");
        }
    }
}
