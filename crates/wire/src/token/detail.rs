//! The member or claim for which a token is rejected, what it holds, and the setting that changes
//! that. For people: the decision is made elsewhere.

use serde_json::{Map, Value};

use super::claim_mapping::{ClaimMapping, first};
use super::claim_name::ClaimName;
use super::verifier::{Audience, VerificationPolicy, rejected_member};
use crate::explain::report::names_of;
use crate::explain::unverified::DecodedToken;
use crate::keys::KeySet;
use crate::rejection::Rejection;

type Members = Map<String, Value>;

/// Longest value that is repeated.
const READABLE_BYTES: usize = 200;

/// Describes the cause of `rejection`; `None` where the reason says all.
pub(super) fn of(
    rejection: Rejection,
    policy: &VerificationPolicy,
    keys: &KeySet,
    token: &str,
) -> Option<String> {
    let token = DecodedToken::of(token)?;
    let (header, claims) = (token.header.as_object()?, token.claims.as_object()?);
    match rejection {
        Rejection::TokenHeader => Some(of_header(header)),
        Rejection::TokenAlgorithm => {
            let (found, keys) = (readable(header.get("alg")), names_of(keys));
            let fewer = in_table(policy, ", and `algorithms` may allow fewer");
            Some(format!(
                "its `alg` is {found}; the issuer's keys are {keys}{fewer}"
            ))
        }
        Rejection::TokenKeyUnknown => Some(format!(
            "its `kid` is {}; the issuer's keys are {}",
            readable(header.get("kid")),
            names_of(keys)
        )),
        Rejection::TokenIssuer => {
            let issuer = policy.issuer.as_deref().unwrap_or_default();
            let found = readable(claims.get("iss"));
            Some(format!(
                "its `iss` is {found}, and \"{issuer}\" is required, byte for byte"
            ))
        }
        Rejection::TokenAudience => Some(of_audience(policy, claims)),
        Rejection::TokenClaimMissing => missing(policy, claims),
        Rejection::TokenClaimInvalid => invalid(policy, claims),
        _ => None,
    }
}

fn of_header(header: &Members) -> String {
    if let Some(name) = rejected_member(header) {
        return format!("its header has `{name}`, which no setting allows");
    }
    let kid = header.get("kid").filter(|kid| !kid.is_string());
    match kid {
        Some(kid) => format!("its `kid` is {}, and not text", kind(Some(kid))),
        None => format!(
            "its `typ` is {}, its `kid` {}: JWT or at+jwt is expected, and a name of visible ASCII",
            readable(header.get("typ")),
            readable(header.get("kid"))
        ),
    }
}

fn of_audience(policy: &VerificationPolicy, claims: &Members) -> String {
    let claim = policy.mapping.as_ref().and_then(ClaimMapping::audience);
    let (name, found) = match claim {
        Some(claim) => (claim.to_string(), claim.find(claims)),
        None => ("aud".to_owned(), claims.get("aud")),
    };
    let wanted = match &policy.audience {
        Audience::OneOf(audiences) => audiences.join(", "),
        Audience::OneOfOrNone(own) if !own.is_empty() => {
            format!("not set, --app-id and --app-name are {}", own.join(", "))
        }
        Audience::OneOfOrNone(_) | Audience::Any => "not set".to_owned(),
    };
    let (found, setting) = (readable(found), setting(policy, "audience"));
    let other = in_table(policy, ", and `audience-claim` names another claim");
    format!("its `{name}` is {found}; {setting} is {wanted}{other}")
}

/// Returns the name of a setting as it was written.
fn setting(policy: &VerificationPolicy, member: &str) -> String {
    match &policy.name {
        Some(table) => format!("`{member}` of [[issuer]] {table}"),
        None => format!("--{member}"),
    }
}

/// Returns the part of a sentence about what a table alone can say.
fn in_table<'s>(policy: &VerificationPolicy, sentence: &'s str) -> &'s str {
    policy.name.as_ref().map_or("", |_| sentence)
}

/// Names the first required claim that is not there.
fn missing(policy: &VerificationPolicy, claims: &Members) -> Option<String> {
    let is_there = |name: &str| claims.get(name).is_some_and(|value| !value.is_null());
    match &policy.mapping {
        Some(mapping) => {
            let mut required = mapping.required();
            let absent = required.find(|(_, of)| first(of, claims).is_none());
            if let Some((field, of)) = absent {
                let (claims, setting) = (listed(of), setting(policy, "claim"));
                return Some(format!(
                    "it has no {claims}, which `{field}` comes from: {setting} may take another, as in {field}=email"
                ));
            }
        }
        None => {
            let mut required = ["username", "userId"].into_iter();
            if let Some(name) = required.find(|name| !is_there(name)) {
                return Some(format!(
                    "it has no `{name}`, which the auth server's tokens have"
                ));
            }
        }
    }
    (!is_there("exp")).then(|| "it has no `exp`: --allow-no-exp accepts it for ever".to_owned())
}

/// Names the first claim of another kind than expected.
fn invalid(policy: &VerificationPolicy, claims: &Members) -> Option<String> {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if let Some(mapping) = &policy.mapping {
        for (field, of) in mapping.required() {
            if let Some(value) = first(of, claims)
                && !is_text(value)
                && !value.is_i64()
                && !value.is_u64()
            {
                return Some(format!(
                    "{}, which `{field}` comes from, is {}: text or an integer is expected",
                    listed(of),
                    kind(Some(value))
                ));
            }
        }
    }
    let of_contract: &[&str] = match policy.mapping {
        None => &["username", "userId", "nickName", "sub", "jti"],
        Some(_) => &[],
    };
    let texts = of_contract
        .iter()
        .chain(&["iss"])
        .map(|name| (*name, "text"));
    let times = ["exp", "nbf", "iat"].map(|name| (name, "a number"));
    let mut expected = texts.chain(times).filter(|(name, wanted)| {
        let value = claims.get(*name).filter(|value| !value.is_null());
        value.is_some_and(|value| match *wanted {
            "text" => !is_text(value),
            _ => !value.is_number(),
        })
    });
    if let Some((name, wanted)) = expected.next() {
        let found = kind(claims.get(name));
        return Some(format!("its `{name}` is {found}: {wanted} is expected"));
    }
    let (aud, extra) = (kind(claims.get("aud")), kind(claims.get("extraInfo")));
    Some(format!(
        "its `aud` is {aud} and its `extraInfo` {extra}: texts are expected, and numbers of seconds within 53 bits"
    ))
}

fn listed(claims: &[ClaimName]) -> String {
    let names: Vec<_> = claims.iter().map(|claim| format!("`{claim}`")).collect();
    names.join(" or ")
}

/// Describes a value by itself if it is short, else by its kind.
fn readable(value: Option<&Value>) -> String {
    let text = value.map(Value::to_string);
    match text.filter(|text| text.len() <= READABLE_BYTES) {
        Some(text) => text,
        None => kind(value).to_owned(),
    }
}

fn kind(value: Option<&Value>) -> &'static str {
    match value {
        None => "absent",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "true or false",
        Some(Value::Number(number)) if number.is_f64() => "a number with a fraction",
        Some(Value::Number(_)) => "a number",
        Some(Value::String(text)) if text.is_empty() => "an empty text",
        Some(Value::String(_)) => "text",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
    }
}
