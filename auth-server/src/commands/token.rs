//! `token inspect`: decodes a token and verifies it with the servers' verifier. Reads standard
//! input, since other users of the machine can see command lines.

use std::io::Read;
use std::path::Path;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use postern_contract::explanation::Explanation;
use postern_contract::rejection::Rejection;
use postern_process::clock::unix_now;
use postern_process::exit::ExitError;
use postern_process::files::bounded_read;
use postern_token::invalid::InvalidToken;
use postern_token::keys::algorithms::ASYMMETRIC;
use postern_token::keys::signing_type::SigningType;
use postern_token::keys::{KeySet, VerificationKey};
use postern_token::observer::Observer;
use postern_token::policy::{BoundTokens, VerificationPolicy};
use postern_token::sources::bearer::{self, Scheme};
use postern_token::unverified::DecodedToken;
use zeroize::Zeroizing;

use super::keys::KeysInStore;
use super::print;
use crate::cli::token::{TokenCommand, TokenInspectArgs};
use crate::config::{MAX_AUTHORIZATION_BYTES, verification_policy};
use crate::revocations::log::RevocationLog;

/// Twice the maximum of a server, to inspect tokens that are too long for it.
const MAX_INPUT_BYTES: u64 = 2 * MAX_AUTHORIZATION_BYTES as u64;

/// A public key in PEM takes 1 KiB, a key of a JWK Set with its certificates 8 KiB.
const MAX_KEY_FILE_BYTES: u64 = 64 * 1024;

pub(crate) async fn run(command: &TokenCommand) -> Result<(), ExitError> {
    let TokenCommand::Inspect(args) = command;
    let token = read(std::io::stdin().lock())?;
    let known = Known::read(args).await?;
    let explanation = explain(args, &token, &known, args.at.unwrap_or_else(unix_now));
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

/// The keys, and the revocations where the keys are those of a store.
struct Known {
    keys: KeySet,
    revocations: Option<RevocationLog>,
}

impl Known {
    async fn read(args: &TokenInspectArgs) -> Result<Self, ExitError> {
        if let Some(file) = &args.key_file {
            return Ok(Self {
                keys: keys_in(file, args)?,
                revocations: None,
            });
        }
        let held = KeysInStore::open(&args.keys).await?;
        let revocations = held.store.log();
        // Compares the clocks: the log is read by the store's time.
        held.store.now().await?;
        revocations.catch_up(&held.store.opened).await?;
        revocations.check_known()?;
        Ok(Self {
            keys: held.load().await?.verification_key_set(held.signing_type),
            revocations: Some(revocations),
        })
    }
}

fn keys_in(file: &Path, args: &TokenInspectArgs) -> Result<KeySet, ExitError> {
    let unusable = |error: &dyn std::fmt::Display| {
        ExitError::Config(format!("--key-file {}: {error}", file.display()))
    };
    let text = bounded_read::read_text(file, MAX_KEY_FILE_BYTES).map_err(|why| unusable(&why))?;
    let keys = match args.keys.signing_type {
        Some(SigningType::Hmac) => {
            VerificationKey::parse(SigningType::Hmac, &text).map(KeySet::nameless)
        }
        Some(one) => KeySet::from_file(text.as_bytes(), &[one.algorithm()]),
        None => KeySet::from_file(text.as_bytes(), &ASYMMETRIC),
    };
    keys.map_err(|error| unusable(&error))
}

fn explain(args: &TokenInspectArgs, token: &str, known: &Known, now: i64) -> Explanation {
    let mut explanation = Explanation {
        at: now,
        ..Explanation::default()
    };
    match verify(&args.issuer, token, known, now, &mut explanation) {
        Ok(()) => explanation.conclude("verified", None),
        Err(rejection) => explanation.conclude("rejected", Some(rejection)),
    }
    explanation.show_token(token);
    explanation.show_keys(Some(&known.keys), None);
    explanation
}

fn verify(
    issuer: &str,
    token: &str,
    known: &Known,
    now: i64,
    observer: &mut Explanation,
) -> Result<(), Rejection> {
    let policy = VerificationPolicy {
        bound_tokens: BoundTokens::Unchecked,
        ..verification_policy(issuer)
    };
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
    let bearer = observer.check("authorization", read)?;
    let claims = policy.verify_observed(&known.keys, bearer, now, observer)?;
    match &known.revocations {
        None => observer.skipped("revocation", "--key-file comes without revocations"),
        Some(log) if log.revokes(&claims) => {
            return observer.check("revocation", Err(Rejection::TokenRevoked));
        }
        Some(_) => observer.checked("revocation", true),
    }
    if DecodedToken::decode(token).is_some_and(|it| it.claims.get("cnf").is_some()) {
        observer.skipped(
            "proof",
            "the token is bound (`cnf`), and counts only with its key",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::Write;
    use std::sync::Arc;

    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use postern_contract::explanation::{Step, StepOutcome};
    use postern_token::possession::Binding;

    use clap::Parser;

    use super::*;
    use crate::accounts::users::builtin::tests::builtin_user;
    use crate::cli::{Cli, Command};
    use crate::keys::pair::SigningKeyPair;
    use crate::keys::pair::tests::pair;
    use crate::keys::published::PublishedKeys;
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
    fn a_file_of_keys_is_read_in_each_form_that_is_published() {
        for signing_type in [SigningType::Rsa, SigningType::Ecdsa, SigningType::Hmac] {
            let ours = Arc::new(pair(signing_type));
            let published =
                PublishedKeys::new(signing_type, KeyRing::of(Arc::clone(&ours))).unwrap();
            let set = published.jwk_set.map(|set| set.json.to_vec());
            let text = ours.public_key_string().as_bytes().to_vec();
            for content in [Some(text), set].into_iter().flatten() {
                let mut file = tempfile::NamedTempFile::new().unwrap();
                file.write_all(&content).unwrap();
                let args = inspecting(file.path(), signing_type);
                let keys = keys_in(file.path(), &args).unwrap();
                let known = Known {
                    keys,
                    revocations: None,
                };
                let token = token_of(&ours);
                let verified = verify("auth", &token, &known, 0, &mut Explanation::default());
                assert_eq!(verified, Ok(()), "{}", String::from_utf8_lossy(&content));
            }
        }
    }

    /// Returns the arguments for a file; a shared secret alone needs its type.
    fn inspecting(file: &Path, signing_type: SigningType) -> TokenInspectArgs {
        let file = file.display().to_string();
        let words = ["auth-server", "token", "inspect", "--key-file", &file];
        let hmac = ["--signing-type", "hmac"];
        let further = match signing_type {
            SigningType::Hmac => &hmac[..],
            _ => &[],
        };
        let cli = Cli::parse_from(words.iter().chain(further));
        let Command::Token(TokenCommand::Inspect(args)) = cli.command else {
            unreachable!("token inspect")
        };
        args
    }

    #[test]
    fn a_shared_secret_is_tried_whatever_kid_a_token_names() {
        let ours = Arc::new(pair(SigningType::Hmac));
        let named_otherwise = renamed(&token_of(&ours), &ours);
        let revoked = token_of(&pair(SigningType::Hmac));
        let known = known(ours);
        for (token, expected) in [
            (named_otherwise, Ok(())),
            (revoked, Err(Rejection::TokenSignature)),
        ] {
            let verified = verify("auth", &token, &known, 0, &mut Explanation::default());
            assert_eq!(verified, expected);
        }
    }

    #[test]
    fn a_bound_token_is_verified_except_for_its_proof() {
        let ours = Arc::new(pair(SigningType::Hmac));
        let binding = Binding {
            key: Some([7; 32]),
            certificate: None,
        };
        let token = issued(&ours, Some(binding));
        let known = known(ours);
        for (now, expected) in [(0, Ok(())), (7200, Err(Rejection::TokenExpired))] {
            let mut steps = Explanation::default();
            assert_eq!(verify("auth", &token, &known, now, &mut steps), expected);
            let is_proof = |it: &Step| it.check == "proof" && it.outcome == StepOutcome::Skipped;
            assert_eq!(steps.checks.iter().any(is_proof), expected.is_ok());
        }
    }

    fn known(pair: Arc<SigningKeyPair>) -> Known {
        Known {
            keys: KeyRing::of(pair).verification_key_set(SigningType::Hmac),
            revocations: None,
        }
    }

    fn token_of(pair: &SigningKeyPair) -> String {
        issued(pair, None)
    }

    fn issued(pair: &SigningKeyPair, binding: Option<Binding>) -> String {
        let issuer = TokenIssuer {
            audience: Vec::new(),
            issuer: "auth".to_owned(),
            lifetime: 60,
        };
        let ids = TokenIdentity {
            token_id: "id".to_owned(),
            binding,
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
