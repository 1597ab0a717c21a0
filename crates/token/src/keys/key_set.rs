//! The trusted keys of one moment: keys without names, a JWK Set (RFC 7517), or a set with both.

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};

use super::found::{READABLE_BYTES, found_in, is_json, readable};
use super::{KeyError, KeyId, SUPPORTED, VerificationKey, algorithms, public_pem};
use crate::invalid::InvalidToken;
use crate::strict_json::{self, Map, Value};
use postern_http::text_encoding::BYTE_ORDER_MARK;

/// The trusted keys of one moment. A `kid` selects the keys of its name, or else the keys without a name (the
/// contract's key, a PEM file, a JWK without `kid`); a token without `kid` is tried with each key.
#[derive(Debug, Clone)]
pub struct KeySet {
    keys: Vec<VerificationKey>,
    /// The algorithms that keys of the source may have, including algorithms without a key at present.
    allowed: Vec<Algorithm>,
    /// Keys of the source that are not used, each with the reason.
    skipped: Vec<String>,
}

impl KeySet {
    /// Creates a set of the single key of the contract endpoint (contract §4.3).
    pub fn nameless(key: VerificationKey) -> Self {
        Self::nameless_keys(vec![key])
    }

    /// Creates a set of keys without names, tried in this order.
    pub fn nameless_keys(keys: Vec<VerificationKey>) -> Self {
        let allowed = keys.iter().map(VerificationKey::algorithm).collect();
        Self {
            keys,
            allowed,
            skipped: Vec::new(),
        }
    }

    /// Creates a set of keys with names; tokens of algorithms without a key are rejected.
    pub fn named(mut keys: Vec<VerificationKey>) -> Self {
        for key in &mut keys {
            key.name = Some(key.id().clone());
        }
        Self::nameless_keys(keys)
    }

    /// Parses a JWK Set (RFC 7517 §5), or a single JWK, as many tools write it. Keys for other
    /// purposes, of unknown kinds or of algorithms outside `allowed` are left out; symmetric keys
    /// always are.
    ///
    /// # Errors
    /// [`KeyError::NotAJwkSet`], [`KeyError::NoUsableKey`] if a key has its private half or nothing is
    /// left.
    pub fn from_jwks(json: &[u8], allowed: &[Algorithm]) -> Result<Self, KeyError> {
        let json = json.strip_prefix(BYTE_ORDER_MARK).unwrap_or(json);
        let not_a_set = || KeyError::NotAJwkSet {
            found: found_in(json),
        };
        let document = strict_json::value(json).map_err(|_| not_a_set())?;
        let members = match (document.get("keys"), document.get("kty")) {
            (Some(Value::Array(members)), _) => members.as_slice(),
            // A document with `kty` is a single key.
            (None, Some(_)) => std::slice::from_ref(&document),
            _ => return Err(not_a_set()),
        };
        let wanted: Vec<_> = allowed.iter().copied().map(algorithms::name).collect();
        let no_usable_key = |found: String| KeyError::NoUsableKey {
            found,
            wanted: wanted.join(", "),
        };
        let mut keys = Vec::new();
        let mut skipped = Vec::new();
        for (index, member) in members.iter().enumerate() {
            // The whole set is rejected: with a published private half any client can sign tokens.
            if has_private_half(member) {
                let name = describe_key(index, member);
                return Err(no_usable_key(format!("{name}: {}", KeyError::PrivateKey)));
            }
            match verification_key_from_jwk(member, allowed) {
                Ok(key) => keys.push(key),
                // An unusable key is no error: issuers add keys of new kinds to a set that is in use.
                Err(why) => skipped.push(format!("{}: {why}", describe_key(index, member))),
            }
        }
        match (keys.is_empty(), skipped.is_empty()) {
            (false, _) => Ok(Self {
                keys,
                allowed: allowed.to_vec(),
                skipped,
            }),
            (true, false) => Err(no_usable_key(skipped.join("; "))),
            (true, true) => Err(no_usable_key("none".to_owned())),
        }
    }

    /// Parses a file of JSON as [`Self::from_jwks`], or of one or more PEM blocks with a public key,
    /// or the base64 of one key's DER. A key of PEM is used with the first of `allowed` that fits it.
    ///
    /// # Errors
    /// Those of [`Self::from_jwks`], [`KeyError::NotPublicPem`] for any other block,
    /// [`KeyError::RsaTooSmall`], [`KeyError::NotAllowed`] if no algorithm fits.
    pub fn from_file(bytes: &[u8], allowed: &[Algorithm]) -> Result<Self, KeyError> {
        if is_json(bytes) {
            return Self::from_jwks(bytes, allowed);
        }
        let keys = public_pem::blocks(bytes)?
            .iter()
            .map(|block| VerificationKey::from_block(block, allowed))
            .collect::<Result<_, _>>()?;
        Ok(Self::nameless_keys(keys))
    }

    /// Returns name and algorithm of each key, for people.
    pub fn names(&self) -> String {
        let names = self.keys.iter().map(|key| key.name().to_string());
        names.collect::<Vec<_>>().join(", ")
    }

    /// Returns all keys, for status and logs.
    pub fn keys(&self) -> &[VerificationKey] {
        &self.keys
    }

    /// Returns the keys of the source that are not used, each with the reason.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Returns the keys for a token with this `kid`, or without one.
    pub(crate) fn named_by(&self, kid: Option<&KeyId>) -> impl Iterator<Item = &VerificationKey> {
        let has_name = move |key: &VerificationKey| key.name.as_ref() == kid;
        // Keys without a name count only if no key has this name.
        let is_known = self.keys.iter().any(has_name);
        self.keys.iter().filter(move |key| match kid {
            None => true,
            Some(_) if is_known => has_name(key),
            Some(_) => !key.is_named(),
        })
    }

    /// Returns true if a newer key of the source may verify a token that these keys reject so. Only a name tells
    /// a key from its successor; `names_key`: the token has one.
    pub fn may_be_outdated(&self, rejection: InvalidToken, names_key: bool) -> bool {
        match rejection {
            InvalidToken::KeyUnknown => true,
            InvalidToken::Signature => {
                !names_key || !self.keys.iter().all(VerificationKey::is_named)
            }
            _ => false,
        }
    }

    /// Returns true if a token may be signed with this algorithm, by a present key or by a later
    /// one of the same source.
    pub fn allows(&self, algorithm: Algorithm) -> bool {
        self.allowed.contains(&algorithm)
    }
}

fn has_private_half(member: &Value) -> bool {
    match member.get("d") {
        Some(private) => !private.says_nothing(),
        None => false,
    }
}

/// Describes a key by its number, its name, and its algorithm or kind.
fn describe_key(index: usize, member: &Value) -> String {
    let name = match readable_member(member, "kid") {
        Some(kid) => format!(" '{kid}'"),
        None => String::new(),
    };
    let kind = ["alg", "crv", "kty"]
        .into_iter()
        .find_map(|name| readable_member(member, name));
    format!("key {}{name} ({})", index + 1, kind.unwrap_or("of no kind"))
}

/// Returns a member whose text is short, and can stand in a line.
fn readable_member<'m>(member: &'m Value, name: &str) -> Option<&'m str> {
    let text = member.get(name)?.as_str()?;
    let is_short = (1..=READABLE_BYTES).contains(&text.len());
    (is_short && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some(text)
}

/// Parses a key, or returns the reason why it is not used. Members that no verifier needs, such as
/// certificates (`x5c`), are not read, whatever they hold (RFC 7517 §4).
pub(super) fn verification_key_from_jwk(
    member: &Value,
    allowed: &[Algorithm],
) -> Result<VerificationKey, String> {
    let Some(jwk) = member.as_object() else {
        return Err(format!("it is {}, and no object", member.kind()));
    };
    check_purpose(jwk)?;
    let kty = required(jwk, "kty")?;
    let curve = match kty {
        "EC" | "OKP" => required(jwk, "crv")?,
        _ => "",
    };
    let key = match (kty, curve) {
        ("RSA", _) => DecodingKey::from_rsa_raw_components(&number(jwk, "n")?, &number(jwk, "e")?),
        ("EC", "P-256") => point(jwk, 32)?,
        ("EC", "P-384") => point(jwk, 48)?,
        ("OKP", "Ed25519") => DecodingKey::from_ed_der(&bytes(jwk, "x")?),
        // Any reader of the set would know the secret, and could sign tokens with it.
        ("oct", _) => return Err("a secret is never used".to_owned()),
        _ => {
            let kind = readable(&format!("{kty} {curve}"));
            return Err(format!(
                "a key of an unknown kind, '{}': {SUPPORTED}",
                kind.trim_end()
            ));
        }
    };
    // A key without `alg` is used with the first allowed algorithm that fits it.
    let stated = text(jwk, "alg")?;
    let fits = |it: &&Algorithm| is_for_keys(**it, kty, curve) && is_stated(stated, **it);
    let algorithm = *allowed
        .iter()
        .find(fits)
        .ok_or("its algorithm is not among the allowed")?;
    let mut key =
        VerificationKey::named_by_thumbprint(algorithm, key).map_err(|error| match error {
            KeyError::NotAPublicKey => "its members are no public key of its kind".to_owned(),
            error => error.to_string(),
        })?;
    if let Some(kid) = text(jwk, "kid")? {
        let name = KeyId::new(kid).ok_or("its kid is not of 1 to 128 visible ASCII characters")?;
        key.name = Some(name);
    }
    Ok(key)
}

/// Returns true for an algorithm of keys of this kind.
fn is_for_keys(algorithm: Algorithm, kty: &str, curve: &str) -> bool {
    match (kty, curve) {
        ("RSA", _) => algorithm.family() == AlgorithmFamily::Rsa,
        ("EC", "P-256") => algorithm == Algorithm::ES256,
        ("EC", "P-384") => algorithm == Algorithm::ES384,
        ("OKP", "Ed25519") => algorithm == Algorithm::EdDSA,
        _ => false,
    }
}

/// Checks that a key's own members allow it to verify signatures of this algorithm.
pub(super) fn check_members(jwk: &Map, algorithm: Algorithm) -> Result<(), String> {
    check_purpose(jwk)?;
    if !is_stated(text(jwk, "alg")?, algorithm) {
        return Err("it is for another algorithm".to_owned());
    }
    Ok(())
}

fn is_stated(alg: Option<&str>, algorithm: Algorithm) -> bool {
    match alg {
        Some(name) => algorithms::parse(name) == Some(algorithm),
        None => true,
    }
}

/// Checks that the key's own `use` and `key_ops` allow verification (RFC 7517 §4.2, §4.3);
/// `jwt-svid` is SPIFFE's word for keys of tokens.
fn check_purpose(jwk: &Map) -> Result<(), String> {
    match text(jwk, "use")? {
        None | Some("sig" | "jwt-svid") => {}
        Some(other) => return Err(format!("it is for another use, '{}'", readable(other))),
    }
    let operations = match jwk.get("key_ops").unwrap_or_default() {
        Value::Array(operations) => operations.as_slice(),
        Value::Null => &[],
        one @ Value::String(_) => std::slice::from_ref(one),
        other => return Err(format!("its `key_ops` is {}, and no list", other.kind())),
    };
    // .NET writes an empty list, or an empty text in it, for a key without operations.
    let are_named = operations.iter().any(|it| !it.says_nothing());
    if are_named && !operations.iter().any(|it| it.as_str() == Some("verify")) {
        return Err("it is for another use: its `key_ops` lacks 'verify'".to_owned());
    }
    Ok(())
}

/// Returns a member that is text. Empty text counts as missing, as null does: serialisers write them for
/// members that a key does not have.
fn text<'m>(jwk: &'m Map, name: &str) -> Result<Option<&'m str>, String> {
    match jwk.get(name).unwrap_or_default() {
        Value::String(text) if !text.is_empty() => Ok(Some(text)),
        Value::String(_) | Value::Null => Ok(None),
        other => Err(format!("its `{name}` is {}, and not text", other.kind())),
    }
}

fn required<'m>(jwk: &'m Map, name: &str) -> Result<&'m str, String> {
    text(jwk, name)?.ok_or_else(|| format!("its `{name}` is missing"))
}

fn bytes(jwk: &Map, name: &str) -> Result<Vec<u8>, String> {
    // Some issuers write the members of keys in plain base64, or pad them (RFC 7515 §2 forbids both).
    let text = required(jwk, name)?.replace('+', "-").replace('/', "_");
    PADDED_OR_NOT
        .decode(text)
        .map_err(|_| format!("its `{name}` is no base64url"))
}

/// Base64url, with padding or without it.
const PADDED_OR_NOT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns a number without zeros in front, which some issuers write (RFC 7518 §2 forbids it).
fn number(jwk: &Map, name: &str) -> Result<Vec<u8>, String> {
    Ok(bytes(jwk, name)?
        .into_iter()
        .skip_while(|byte| *byte == 0)
        .collect())
}

/// Returns the key of an uncompressed point (SEC 1 §2.3.3), whose coordinates have `length` bytes.
fn point(jwk: &Map, length: usize) -> Result<DecodingKey, String> {
    let mut point = vec![4];
    for name in ["x", "y"] {
        // Some issuers leave out leading zeros, or write one too many (RFC 7518 §6.2.1.2 forbids both).
        let coordinate = number(jwk, name)?;
        point.resize(point.len() + length.saturating_sub(coordinate.len()), 0);
        point.extend(coordinate);
    }
    Ok(DecodingKey::from_ec_der(&point))
}

#[cfg(test)]
mod tests;
