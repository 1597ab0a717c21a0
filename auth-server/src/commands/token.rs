//! `token inspect`: decodes a token and verifies it with the servers' verifier. Reads standard
//! input, since other users of the machine can see command lines.

use std::io::Read;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use postern_contract::explanation::Explanation;
use postern_process::clock::unix_now;
use postern_process::exit::ExitError;
use postern_process::files::bounded_read;
use postern_token::invalid::InvalidToken;
use postern_token::keys::{KeySet, VerificationKey};
use postern_token::observer::Observer;
use postern_token::policy::VerificationPolicy;
use postern_token::sources::bearer::{self, Scheme};
use zeroize::Zeroizing;

use super::keys::KeysInStore;
use super::print;
use crate::cli::token::{TokenCommand, TokenInspectArgs};
use crate::config::{MAX_AUTHORIZATION_BYTES, verification_policy};

/// Twice the maximum of a server, to inspect tokens that are too long for it.
const MAX_INPUT_BYTES: u64 = 2 * MAX_AUTHORIZATION_BYTES as u64;

/// A public key in PEM takes 1 KiB, a shared secret less.
const MAX_KEY_FILE_BYTES: u64 = 64 * 1024;

pub(crate) async fn run(command: &TokenCommand) -> Result<(), ExitError> {
    let TokenCommand::Inspect(args) = command;
    let token = read(std::io::stdin().lock())?;
    let keys = keys(args).await?;
    let explanation = explain(args, &token, &keys, args.at.unwrap_or_else(unix_now));
    if args.json {
        match serde_json::to_string_pretty(&explanation) {
            Ok(json) => print(&json)?,
            Err(error) => return Err(ExitError::Software(error.to_string())),
        }
    } else {
        print(explanation.to_string().trim_end())?;
    }
    match explanation.reason {
        None => Ok(()),
        Some(reason) => Err(ExitError::Unmet(format!(
            "the token is not valid: {reason}"
        ))),
    }
}

/// Reads a token, with or without `Bearer` in front.
fn read(input: impl Read) -> Result<Zeroizing<String>, ExitError> {
    let text = bounded_read::text_of(input, MAX_INPUT_BYTES)
        .map_err(|why| ExitError::Usage(format!("standard input: {why}")))?;
    let line = text.trim();
    let field = line.strip_prefix("Authorization:").unwrap_or(line).trim();
    let token = match field.strip_prefix("Bearer") {
        Some(rest) if rest.is_empty() || rest.starts_with(' ') => rest.trim(),
        _ => field,
    };
    if token.is_empty() {
        return Err(ExitError::Usage("standard input holds no token".to_owned()));
    }
    Ok(Zeroizing::new(token.to_owned()))
}

async fn keys(args: &TokenInspectArgs) -> Result<KeySet, ExitError> {
    let Some(file) = &args.key_file else {
        let keys = KeysInStore::open(&args.keys).await?;
        return Ok(keys.load().await?.verification_key_set(keys.signing_type));
    };
    let unusable = |error: &dyn std::fmt::Display| {
        ExitError::Config(format!("--key-file {}: {error}", file.display()))
    };
    let text = bounded_read::read_text(file, MAX_KEY_FILE_BYTES).map_err(|why| unusable(&why))?;
    match VerificationKey::parse(args.keys.signing_type.unwrap_or_default(), &text) {
        Ok(key) => Ok(KeySet::nameless(key)),
        Err(error) => Err(unusable(&error)),
    }
}

fn explain(args: &TokenInspectArgs, token: &str, keys: &KeySet, now: i64) -> Explanation {
    let policy = verification_policy(&args.issuer);
    let mut explanation = Explanation {
        at: now,
        ..Explanation::default()
    };
    match verify(&policy, token, keys, now, &mut explanation) {
        Ok(()) => explanation.conclude("verified", None),
        Err(invalid) => explanation.conclude("rejected", Some(invalid.into())),
    }
    explanation.show_token(token);
    explanation.show_keys(Some(keys), None);
    explanation
}

fn verify(
    policy: &VerificationPolicy,
    token: &str,
    keys: &KeySet,
    now: i64,
    observer: &mut Explanation,
) -> Result<(), InvalidToken> {
    let mut headers = HeaderMap::new();
    if let Ok(field) = HeaderValue::from_str(&format!("Bearer {token}")) {
        headers.insert(AUTHORIZATION, field);
    }
    let read = bearer::from_headers(&headers, MAX_AUTHORIZATION_BYTES, true)
        .and_then(|token| token.ok_or(InvalidToken::Malformed));
    observer.explains(&read, |invalid| match invalid {
        InvalidToken::Malformed => Some(bearer::unreadable(
            token.as_bytes(),
            &[Scheme::Bearer],
            true,
        )),
        // The reason says all.
        _ => None,
    });
    let token = observer.check("authorization", read)?;
    policy.verify_observed(keys, token, now, observer).map(drop)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::Arc;

    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use postern_token::keys::signing_type::SigningType;

    use super::*;
    use crate::accounts::users::builtin::tests::builtin_user;
    use crate::keys::pair::SigningKeyPair;
    use crate::keys::pair::tests::pair;
    use crate::keys::ring::KeyRing;
    use crate::tokens::issuer::{TokenIdentity, TokenIssuer};

    #[test]
    fn the_token_may_come_with_the_words_before_it() {
        for text in [
            "a.b.c",
            "a.b.c\n",
            "Bearer a.b.c\n",
            "Authorization: Bearer a.b.c\r\n",
            "\u{feff}Bearer a.b.c\n",
        ] {
            assert_eq!(read(text.as_bytes()).unwrap().as_str(), "a.b.c");
        }
        for text in ["", "\n", "Bearer "] {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn no_token_is_cut_off() {
        let longest = "x".repeat(16 * 1024);
        assert_eq!(*read(longest.as_bytes()).unwrap(), longest);
        let failure = read(format!("{longest}x").as_bytes()).unwrap_err();
        assert!(failure.to_string().contains("longer than 16 KiB"));
        assert_eq!(failure.code(), 64);
    }

    #[test]
    fn a_shared_secret_is_tried_whatever_kid_a_token_names() {
        let ours = Arc::new(pair(SigningType::Hmac));
        let named_otherwise = renamed(&token_of(&ours), &ours);
        let revoked = token_of(&pair(SigningType::Hmac));
        let keys = KeyRing::of(ours).verification_key_set(SigningType::Hmac);
        let policy = verification_policy("auth");
        for (token, expected) in [
            (named_otherwise, Ok(())),
            (revoked, Err(InvalidToken::Signature)),
        ] {
            let verified = verify(&policy, &token, &keys, 0, &mut Explanation::default());
            assert_eq!(verified, expected);
        }
    }

    fn token_of(pair: &SigningKeyPair) -> String {
        let issuer = TokenIssuer {
            audience: Vec::new(),
            issuer: "auth".to_owned(),
            lifetime: 60,
        };
        let ids = TokenIdentity {
            token_id: "id".to_owned(),
            ..TokenIdentity::default()
        };
        issuer
            .issue(pair, &builtin_user(), issuer.times_from(0), ids)
            .unwrap()
    }

    /// Returns the same token under another `kid`.
    fn renamed(token: &str, pair: &SigningKeyPair) -> String {
        let claims = token.split('.').nth(1).unwrap();
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"other"}"#);
        let message = format!("{header}.{claims}");
        let signature = pair.sign(message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
