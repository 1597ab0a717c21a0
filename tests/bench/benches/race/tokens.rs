//! The key that every contestant trusts, and tokens: good ones, and every kind of bad one.

use std::io::Write;
use std::ops::Range;
use std::thread;

use aws_lc_rs::signature::{ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use postern_token::keys::{VerificationKey, signing_type};
use postern_token::revocations::{Chain, LIST_TYPE, ListHead, RevocationDigest, Revoked};
use serde_json::json;
use tempfile::NamedTempFile;
use tests::actors::token_forge::signing_input;
use tests::keys::{SigningKey, SigningType};
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::wire::clock;

/// `iss` of every token.
pub(crate) const ISSUER: &str = "auth";
/// Clock difference in seconds that each contestant allows.
pub(crate) const LEEWAY: u32 = 30;
const LIFETIME: i64 = 6 * 3600;
const KEY_PATH: &[u8] = b"/auth/.well-known/jwks.json";
const REVOCATIONS_PATH: &[u8] = b"/auth/.well-known/revocations";

/// Issuer of a run's tokens.
pub(crate) struct Issuer {
    key: SigningKey,
    kid: String,
    jwk_set: String,
}

/// Unique tokens that are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    NotAToken,
    NotBase64,
    UnknownKey,
    OtherAlgorithm,
    Expired,
    Forged,
}

impl Bad {
    pub(crate) const ALL: [Self; 6] = [
        Self::NotAToken,
        Self::NotBase64,
        Self::UnknownKey,
        Self::OtherAlgorithm,
        Self::Expired,
        Self::Forged,
    ];

    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::NotAToken => "no JWT at all",
            Self::NotBase64 => "signature is not base64url",
            Self::UnknownKey => "unknown `kid`",
            Self::OtherAlgorithm => "another algorithm",
            Self::Expired => "expired, signature good",
            Self::Forged => "forged signature",
        }
    }
}

impl Issuer {
    pub(crate) fn new() -> Self {
        let key = SigningKey::generate(SigningType::Rsa);
        let (kid, jwk_set) = named(&key);
        Self { key, kid, jwk_set }
    }

    /// Returns the public half as PEM.
    pub(crate) fn public_pem(&self) -> String {
        self.key.served()
    }

    /// Returns the public half as a JWK Set.
    pub(crate) fn jwk_set(&self) -> &str {
        &self.jwk_set
    }

    /// Starts an auth server of this key, with a link to the JWK Set.
    pub(crate) fn auth_server(&self) -> SocketServer {
        self.auth_server_with(None)
    }

    /// Starts one that has revoked the tokens of these numbers.
    pub(crate) fn revoking_auth_server(&self, numbers: Range<usize>) -> SocketServer {
        self.auth_server_with(Some(self.revocations(numbers)))
    }

    fn auth_server_with(&self, revocations: Option<String>) -> SocketServer {
        let envelope =
            json!({"success": true, "status": 200, "msg": "m", "data": self.key.served()});
        let (envelope, jwk_set) = (envelope.to_string(), self.jwk_set.clone());
        SocketServer::start(move |request| {
            let json = "Content-Type: application/json";
            let mut fields = vec![json, "Link: </auth/.well-known/jwks.json>; rel=\"jwks\""];
            if revocations.is_some() {
                fields.push("Link: </auth/.well-known/revocations>; rel=\"revocations\"");
            }
            let bytes = match request.target().as_slice() {
                KEY_PATH => response("200 OK", &[json], jwk_set.as_bytes()),
                target if target.starts_with(REVOCATIONS_PATH) => {
                    let list = revocations.as_deref().unwrap_or_default();
                    response("200 OK", &["Content-Type: text/plain"], list.as_bytes())
                }
                _ => response("200 OK", &fields, envelope.as_bytes()),
            };
            Reply::Bytes(bytes)
        })
    }

    /// Returns a signed revocation list of the tokens of these numbers.
    fn revocations(&self, numbers: Range<usize>) -> String {
        let digest = |number| RevocationDigest::for_token(&token_id(number));
        let lines = numbers.map(|number| Revoked::Token(digest(number)).to_string());
        let lines: Vec<String> = lines.collect();
        let chain = lines
            .iter()
            .fold(Chain::default(), |chain, line| chain.next(line));
        let head = ListHead::new(&chain, 1, clock::now());
        let algorithm = self.key.algorithm().name();
        let header = json!({"alg": algorithm, "kid": self.kid, "typ": LIST_TYPE});
        let claims = serde_json::to_vec(&head).expect("claims of a head");
        let head = self.signed(&signing_input(header.to_string().as_bytes(), &claims));
        format!("{head}\n{}", lines.join("\n"))
    }

    /// Returns a good token, a different one for each number.
    pub(crate) fn token(&self, number: usize) -> String {
        self.signed(&self.input(number, LIFETIME))
    }

    /// Returns a function that checks one token's signature, with the sidecar's library and a key
    /// that is parsed already.
    pub(crate) fn signature_check(&self) -> impl Fn() {
        let (token, public_key) = (self.token(0), self.key.public_der());
        let key = ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public_key);
        let key = key.expect("an RSA key");
        let (signed, signature) = token.rsplit_once('.').expect("a token");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("a signature");
        let signed = signed.to_owned();
        move || {
            key.verify_sig(signed.as_bytes(), &signature)
                .expect("a good signature");
        }
    }

    fn bad(&self, kind: Bad, number: usize) -> String {
        let good = || self.input(number, LIFETIME);
        match kind {
            Bad::NotAToken => encode(&noise(number, 450)),
            Bad::NotBase64 => {
                // The last two letters of the other alphabet: valid in the header field, invalid in
                // a JWT.
                let signature = STANDARD_NO_PAD.encode(noise(number, 254));
                format!("{}.+/{signature}", good())
            }
            Bad::UnknownKey => {
                let header = json!({"alg": "RS256", "kid": format!("unknown-{number}")});
                let input = self.input_under(&header.to_string(), number, LIFETIME);
                format!("{input}.{}", encode(&noise(number, 256)))
            }
            Bad::OtherAlgorithm => {
                let header = json!({"alg": "HS256", "kid": self.kid});
                let input = self.input_under(&header.to_string(), number, LIFETIME);
                format!("{input}.{}", encode(&noise(number, 32)))
            }
            Bad::Expired => self.signed(&self.input(number, -3600)),
            Bad::Forged => {
                // Below the modulus; a verifier would skip the computation otherwise.
                let mut signature = noise(number, 256);
                signature[0] = 0;
                format!("{}.{}", good(), encode(&signature))
            }
        }
    }

    fn signed(&self, input: &str) -> String {
        format!("{input}.{}", encode(&self.key.sign(input.as_bytes())))
    }

    fn input(&self, number: usize, lifetime: i64) -> String {
        let header = json!({"alg": self.key.algorithm().name(), "kid": self.kid});
        self.input_under(&header.to_string(), number, lifetime)
    }

    fn input_under(&self, header: &str, number: usize, lifetime: i64) -> String {
        let now = clock::now();
        let claims = json!({
            "iss": ISSUER, "iat": now, "exp": now + lifetime, "jti": token_id(number),
            "username": "alice", "nickName": "Alice", "userId": "10001",
        });
        signing_input(header.as_bytes(), claims.to_string().as_bytes())
    }

    /// Writes a file with this many different good tokens, one a line.
    pub(crate) fn good_file(&self, count: usize) -> NamedTempFile {
        file(count, |number| self.token(number))
    }

    /// Writes a file with this many different tokens of a bad kind.
    pub(crate) fn bad_file(&self, kind: Bad, count: usize) -> NamedTempFile {
        file(count, |number| self.bad(kind, number))
    }
}

/// Returns the `jti` of a token.
fn token_id(number: usize) -> String {
    format!("{number:08}")
}

fn named(key: &SigningKey) -> (String, String) {
    let parsed = VerificationKey::parse(signing_type::SigningType::Rsa, &key.served());
    let parsed = parsed.expect("our own key");
    let jwk = parsed.to_jwk().expect("a public key");
    let kid = jwk.common.key_id.clone().expect("a name");
    (kid, json!({"keys": [jwk]}).to_string())
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns bytes that look random and are the same in every run (xorshift).
fn noise(seed: usize, length: usize) -> Vec<u8> {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| byte()).collect()
}

/// Writes the lines of a file, a part of them on each processor.
fn file(count: usize, line: impl Fn(usize) -> String + Sync) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a temporary file");
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let text = |n: usize| -> String {
        let part = count * n / threads..count * (n + 1) / threads;
        part.map(|number| line(number) + "\n").collect()
    };
    thread::scope(|scope| {
        let text = &text;
        let parts: Vec<_> = (0..threads).map(|n| scope.spawn(move || text(n))).collect();
        for part in parts {
            let text = part.join().expect("tokens");
            file.write_all(text.as_bytes()).expect("tokens are written");
        }
    });
    file
}
