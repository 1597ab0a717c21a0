//! The member or claim for which a token is rejected, its value, and the setting that changes the decision.
//! The texts are for people: the decision is made elsewhere.

use std::fmt::Debug;

use crate::claims::mapping::{ClaimMapping, counting, first};
use crate::claims::name::ClaimName;
use crate::claims::{Claims, audience, numeric_date};
use crate::compact::{CompactToken, decode, rejected_member};
use crate::invalid::InvalidToken;
use crate::keys::KeySet;
use crate::policy::{Audience, RequiredIssuer, VerificationPolicy};
use crate::strict_json::{self, Map, Value, member};
use crate::times::{distance, moment};
use crate::unverified::DecodedToken;

/// Max length of a value that is repeated.
const READABLE_BYTES: usize = 200;

/// Describes the cause of `invalid`; `None` if the reason needs no more words.
pub(crate) fn describe(
    invalid: InvalidToken,
    policy: &VerificationPolicy,
    keys: &KeySet,
    token: &str,
    now: i64,
) -> Option<String> {
    // A malformed token cannot be decoded, so its text is described part by part.
    if invalid == InvalidToken::Malformed {
        return unreadable(token);
    }
    let token = DecodedToken::decode(token)?;
    let header = token.header.as_object()?;
    let claims = token.claims.as_object()?;
    match invalid {
        InvalidToken::Header => Some(describe_header(header)),
        InvalidToken::Algorithm => Some(format!(
            "its `alg` is {}; the issuer's keys are {}{}",
            readable(header.get("alg")),
            keys.names(),
            in_table(policy, ", and `algorithms` may allow fewer")
        )),
        InvalidToken::KeyUnknown => Some(format!(
            "its `kid` is {}; the issuer's keys are {}",
            readable(header.get("kid")),
            keys.names()
        )),
        InvalidToken::Issuer => {
            let required = match &policy.issuer {
                RequiredIssuer::Any => return None,
                RequiredIssuer::Absent => "with `no-issuer` it may have none".to_owned(),
                RequiredIssuer::Is(issuer) => format!("\"{issuer}\" is required, byte for byte"),
            };
            Some(format!(
                "its `iss` is {}, and {required}",
                readable(claims.get("iss"))
            ))
        }
        InvalidToken::Audience => Some(describe_audience(policy, claims)),
        InvalidToken::Expired => describe_time("exp", claims, now, policy.leeway_seconds),
        InvalidToken::NotYetValid => describe_time("nbf", claims, now, policy.leeway_seconds),
        InvalidToken::ClaimMissing => describe_missing(policy, claims),
        InvalidToken::ClaimInvalid => describe_invalid(policy, claims),
        _ => None,
    }
}

/// Describes the members of a proof that are compared with its request, or the part that cannot be read.
#[must_use]
pub fn describe_proof(proof: &str) -> Option<String> {
    let Some(decoded) = DecodedToken::decode(proof) else {
        return unreadable(proof);
    };
    let header = decoded.header.as_object()?;
    let claims = decoded.claims.as_object()?;
    let members = [
        ("typ", header),
        ("alg", header),
        ("htm", claims),
        ("htu", claims),
        ("iat", claims),
    ]
    .map(|(name, of)| format!("`{name}` is {}", readable(of.get(name))));
    Some(format!("of the proof {}", members.join(", ")))
}

/// Names the audience of a token, and the required audience.
#[must_use]
pub fn other_audience(policy: &VerificationPolicy, token: &str) -> Option<String> {
    let token = DecodedToken::decode(token)?;
    Some(describe_audience(policy, token.claims.as_object()?))
}

/// Describes the part of a token that cannot be read; `None` for a readable token.
pub fn unreadable(token: &str) -> Option<String> {
    let Ok(parts) = CompactToken::split(token) else {
        let parts = token.split('.').count();
        let encrypted = match parts {
            5 => ": it is encrypted (JWE), which no setting accepts",
            _ => "",
        };
        return Some(format!(
            "the number of its parts between dots is {parts}, and not 3{encrypted}"
        ));
    };
    for (name, part) in [("header", parts.header), ("payload", parts.payload)] {
        let Ok(json) = decode(part) else {
            return Some(not_base64url(name, part));
        };
        if let Err(error) = strict_json::object(&json) {
            return Some(format!("its {name} is no JSON that is accepted: {error}"));
        }
    }
    // The signature is bytes, and no JSON.
    match decode(parts.signature) {
        Ok(_) => None,
        Err(_) => Some(not_base64url("signature", parts.signature)),
    }
}

/// Names the first character that base64url does not have, as in `s=` before a token.
fn not_base64url(name: &str, part: &str) -> String {
    let why = format!("its {name} is no base64url without padding");
    match part.chars().zip(1..).find(|(c, _)| !is_base64url(*c)) {
        Some((found, number)) => format!("{why}: character {number} of it is {found:?}"),
        None => why,
    }
}

fn is_base64url(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_".contains(c)
}

fn describe_header(header: &Map) -> String {
    if let Some(name) = rejected_member(header) {
        return format!("its header has `{name}`, which no setting allows");
    }
    match member(header, "kid") {
        Some(kid) if kid.as_str().is_none() => {
            format!("its `kid` is {}, and not text", kind(Some(kid)))
        }
        _ => format!(
            "its `typ` is {}, its `kid` {}: JWT, at+jwt or JOSE is expected, and a name of visible ASCII",
            readable(header.get("typ")),
            readable(header.get("kid"))
        ),
    }
}

fn describe_time(name: &str, claims: &Map, now: i64, leeway: u32) -> Option<String> {
    let time = numeric_date(&mut claims.clone(), name, f64::floor).ok()??;
    Some(format!(
        "its `{name}` is {}, {}; here it is {}, and the leeway {leeway} s",
        moment(time),
        distance(time, now),
        moment(now)
    ))
}

fn describe_audience(policy: &VerificationPolicy, claims: &Map) -> String {
    let mapped = policy.mapping.as_ref().map(ClaimMapping::audience_claims);
    let mut found = Vec::new();
    for claim in mapped.unwrap_or(&[ClaimName::top_level("aud")]) {
        found.push(format!("its `{claim}` is {}", readable(claim.find(claims))));
    }
    let found = found.join(", ");
    let other = in_table(policy, ", and `audience-claim` names another claim");
    // As the verifier reads the audience: of several claims the first that is not empty.
    let deciding = match &policy.mapping {
        Some(mapping) => mapping.audience(claims),
        None => claims.get("aud"),
    };
    if audience(deciding.cloned()).is_err() {
        return format!("{found}: a text or a list of texts is expected, not empty{other}");
    }
    let wanted = match &policy.audience {
        Audience::OneOf(audiences) => quoted(audiences),
        Audience::OneOfOrNone(own) if !own.is_empty() => {
            format!(
                "not set, so the names of the application count: {}",
                quoted(own)
            )
        }
        Audience::OneOfOrNone(_) | Audience::Any => "not set".to_owned(),
    };
    format!(
        "{found}; {} is {wanted}{other}",
        setting(policy, "audience")
    )
}

/// Lists the texts of a setting: a blank within one would not be seen without quotes.
#[must_use]
pub fn quoted<T: Debug>(texts: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<_> = texts.into_iter().map(|text| format!("{text:?}")).collect();
    texts.join(", ")
}

/// Returns the name of a setting as it was written.
fn setting(policy: &VerificationPolicy, member: &str) -> String {
    match &policy.name {
        Some(table) => format!("`{member}` of [[issuer]] {table}"),
        None => format!("--{member}"),
    }
}

/// Returns the part of a sentence about members that only a table has.
fn in_table<'s>(policy: &VerificationPolicy, sentence: &'s str) -> &'s str {
    match policy.name {
        Some(_) => sentence,
        None => "",
    }
}

/// Names the first required claim that is missing.
fn describe_missing(policy: &VerificationPolicy, claims: &Map) -> Option<String> {
    match &policy.mapping {
        Some(mapping) => {
            for (field, of) in mapping.required() {
                if first(of, claims).is_none() {
                    return Some(format!(
                        "it has no {}, which `{field}` comes from: {} may take another, as in {field}=email",
                        listed(of),
                        setting(policy, "claim")
                    ));
                }
            }
        }
        None => {
            for name in ["username", "userId"] {
                if member(claims, name).is_none() {
                    return Some(format!(
                        "it has no `{name}`, which the auth server's tokens have"
                    ));
                }
            }
        }
    }
    match member(claims, "exp") {
        Some(_) => None,
        None => Some("it has no `exp`: it would count forever".to_owned()),
    }
}

/// Names the first claim of another kind than expected.
fn describe_invalid(policy: &VerificationPolicy, claims: &Map) -> Option<String> {
    if let Some(mapping) = &policy.mapping {
        for (field, of) in mapping.required() {
            if let Some(value) = first(of, claims)
                && value.name().is_none()
            {
                return Some(format!(
                    "{}, which `{field}` comes from, is {}: text or an integer is expected",
                    counted(of, claims),
                    kind(Some(value))
                ));
            }
        }
    }
    let (name, value) = Claims::invalid(claims, policy.mapping.as_ref())?;
    let expected = match name.as_str() {
        "exp" | "nbf" | "iat" => "a number of seconds within 64 bits",
        "extraInfo" => "an object of texts",
        "events" => "no statement, such as a logout token,",
        _ => "a text",
    };
    let found = match value {
        Value::Number(_) | Value::Object(_) => readable(Some(value)),
        other => other.kind().to_owned(),
    };
    Some(format!("its `{name}` is {found}: {expected} is expected"))
}

/// Names the claim that counts for each field of a user that several claims may fill.
pub(crate) fn chosen_claims(policy: &VerificationPolicy, token: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(mapping) = &policy.mapping
        && let Some(token) = DecodedToken::decode(token)
        && let Some(claims) = token.claims.as_object()
    {
        for (field, of) in mapping.required() {
            if of.len() > 1 {
                lines.push(format!("`{field}` comes from {}", counted(of, claims)));
            }
        }
    }
    lines
}

/// Names the claim that counts for a field.
fn counted(of: &[ClaimName], claims: &Map) -> String {
    match (counting(of, claims), of) {
        (Some(claim), [_, _, ..]) => format!(
            "`{claim}` (the first of {} that is there counts)",
            listed(of)
        ),
        _ => listed(of),
    }
}

fn listed(claims: &[ClaimName]) -> String {
    let names: Vec<_> = claims.iter().map(|claim| format!("`{claim}`")).collect();
    names.join(" or ")
}

/// Describes a value by itself if it is short, else by its kind.
fn readable(value: Option<&Value>) -> String {
    match value.map(Value::to_string) {
        Some(text) if text.len() <= READABLE_BYTES => text,
        _ => kind(value).to_owned(),
    }
}

fn kind(value: Option<&Value>) -> &'static str {
    value.map_or("absent", Value::kind)
}
