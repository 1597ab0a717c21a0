//! The revocation list: access tokens that end before their expiry.
//!
//! The auth server publishes one line for each revocation, in the order of its log, behind a head: a
//! compact JWS of its current key with their number and the last digest of their chain. A reader that
//! has the first lines fetches only the others. The lines name digests, because any client may fetch
//! them, and an id of a user or a token is not public.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::claims::Claims;
use crate::invalid::InvalidToken;
use crate::keys::KeySet;
use crate::strict_json::{Map, Value};
use crate::verifier::verified_payload;

/// `typ` of the list: no list passes for a token, and no token for a list.
pub const LIST_TYPE: &str = "postern-revocations+jwt";
/// Seconds after which an unchanged head is signed anew, at each multiple since 1970, so that an old
/// one shows its age.
pub const SIGNED_EVERY: i64 = 600;
/// Length of the longest response. Half of it is the auth server's bound; the rest is room for the
/// revocations before it has noticed that there are too many.
pub const MAX_LIST_BYTES: usize = 2 * 1024 * 1024;
/// Bytes of a digest: enough that no two of a million ids share one.
const DIGEST_BYTES: usize = 12;

/// The begin of the SHA-256 of an id and its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevocationDigest([u8; DIGEST_BYTES]);

impl RevocationDigest {
    /// Returns the digest of a token's `jti`, or of the `sid` of all tokens of a session: no two share
    /// one.
    pub fn for_token(id: &str) -> Self {
        Self::for_id("token", id)
    }

    /// Returns the digest of a user's id.
    pub fn for_user(id: &str) -> Self {
        Self::for_id("user", id)
    }

    /// Returns the digest of an application's id.
    pub fn for_application(id: &str) -> Self {
        Self::for_id("application", id)
    }

    fn for_id(kind: &str, id: &str) -> Self {
        // With the kind: the id of a user may equal the `jti` of a token.
        let digest = digest(&SHA256, format!("{kind}:{id}").as_bytes());
        Self(digest.as_ref().first_chunk().copied().unwrap_or_default())
    }
}

impl fmt::Display for RevocationDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl FromStr for RevocationDigest {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let mut bytes = [0; DIGEST_BYTES];
        match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(DIGEST_BYTES) => Ok(Self(bytes)),
            _ => Err(Malformed),
        }
    }
}

/// A text that is no digest and no line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a revocation")]
pub struct Malformed;

/// The tokens that one line ends; times in seconds since the epoch, before which they were issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Revoked {
    /// A single token, or those of a session.
    Token(RevocationDigest),
    /// Those of a user.
    User(RevocationDigest, i64),
    /// Those of an application.
    Application(RevocationDigest, i64),
    /// All.
    Everyone(i64),
}

impl fmt::Display for Revoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(id) => write!(f, "token {id}"),
            Self::User(id, before) => write!(f, "user {id} {before}"),
            Self::Application(id, before) => write!(f, "application {id} {before}"),
            Self::Everyone(before) => write!(f, "everyone {before}"),
        }
    }
}

impl FromStr for Revoked {
    type Err = Malformed;

    fn from_str(line: &str) -> Result<Self, Malformed> {
        let words: Vec<&str> = line.split(' ').collect();
        let time = |text: &str| text.parse().map_err(|_| Malformed);
        Ok(match *words.as_slice() {
            ["token", id] => Self::Token(id.parse()?),
            ["user", id, before] => Self::User(id.parse()?, time(before)?),
            ["application", id, before] => Self::Application(id.parse()?, time(before)?),
            ["everyone", before] => Self::Everyone(time(before)?),
            _ => return Err(Malformed),
        })
    }
}

/// Takes the begin of a digest as it is: every part is as random as any other.
#[derive(Debug, Clone, Copy, Default)]
struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        // Called for the length of the array too, before its bytes: the last call counts.
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*first);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Digests = HashSet<RevocationDigest, BuildHasherDefault<DigestHasher>>;
/// With the time before which a revoked token was issued, in seconds since the epoch.
type NotBefore = HashMap<RevocationDigest, i64, BuildHasherDefault<DigestHasher>>;

/// The digests under which a list may name one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenDigests {
    token: Option<RevocationDigest>,
    session: Option<RevocationDigest>,
    user: RevocationDigest,
    application: Option<RevocationDigest>,
    /// In seconds since the epoch.
    issued_at: Option<i64>,
}

impl TokenDigests {
    /// Returns the digests of a verified token.
    pub fn from_claims(claims: &Claims) -> Self {
        let application = claims.client_id.as_deref();
        Self {
            token: claims.token_id.as_deref().map(RevocationDigest::for_token),
            session: claims.session.as_deref().map(RevocationDigest::for_token),
            user: RevocationDigest::for_user(&claims.user_id),
            application: application.map(RevocationDigest::for_application),
            issued_at: claims.issued_at,
        }
    }
}

/// Revocations, by the digests of the tokens that they end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevokedTokens {
    tokens: Digests,
    users: NotBefore,
    applications: NotBefore,
    everyone: Option<i64>,
}

impl RevokedTokens {
    /// Adds what one line ends; the latest time counts.
    pub fn add(&mut self, revoked: Revoked) {
        let later = |times: &mut NotBefore, id, before| {
            let time = times.entry(id).or_insert(before);
            *time = before.max(*time);
        };
        match revoked {
            Revoked::Token(id) => drop(self.tokens.insert(id)),
            Revoked::User(id, before) => later(&mut self.users, id, before),
            Revoked::Application(id, before) => later(&mut self.applications, id, before),
            Revoked::Everyone(before) => self.everyone = self.everyone.max(Some(before)),
        }
    }

    /// Returns true if this token was revoked.
    pub fn revokes(&self, token: &TokenDigests) -> bool {
        let issued_before = |time: Option<i64>| {
            // A token without `iat` may have been issued at any time.
            time.is_some_and(|time| token.issued_at.is_none_or(|issued| issued < time))
        };
        let application = token.application.as_ref();
        let mut names = token.token.iter().chain(&token.session);
        names.any(|id| self.tokens.contains(id))
            || issued_before(self.before_of_user(&token.user))
            || issued_before(application.and_then(|id| self.before_of_application(id)))
            || issued_before(self.everyone)
    }

    /// Returns true if this token or session was revoked by its own id.
    pub fn has_token(&self, id: &RevocationDigest) -> bool {
        self.tokens.contains(id)
    }

    /// Returns the time before which the tokens of a user were revoked.
    pub fn before_of_user(&self, id: &RevocationDigest) -> Option<i64> {
        self.users.get(id).copied()
    }

    /// Returns the time before which those of an application were.
    pub fn before_of_application(&self, id: &RevocationDigest) -> Option<i64> {
        self.applications.get(id).copied()
    }

    /// Returns the time before which all were.
    pub const fn before_of_everyone(&self) -> Option<i64> {
        self.everyone
    }

    /// Returns the numbers of tokens, users and applications.
    pub fn counts(&self) -> [usize; 3] {
        [self.tokens.len(), self.users.len(), self.applications.len()]
    }
}

/// The lines up to one of them: each digest is over the former one and the line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chain {
    count: u64,
    digest: [u8; 32],
}

impl Chain {
    /// Returns the chain with one line more.
    #[must_use]
    pub fn next(&self, line: &str) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(&self.digest);
        context.update(line.as_bytes());
        let digest = context.finish();
        Self {
            count: self.count + 1,
            digest: digest.as_ref().first_chunk().copied().unwrap_or_default(),
        }
    }

    /// Returns the number of lines.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the last digest in base64url.
    pub fn digest(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.digest)
    }

    /// Returns the name by which a reader requests the lines after these.
    pub fn cursor(&self) -> String {
        format!("{}.{}", self.count, self.digest())
    }
}

/// The claims of a head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListHead {
    /// The number of the last revocation in the log, which never falls.
    pub seq: u64,
    /// Seconds since the epoch.
    #[serde(rename = "iat")]
    pub issued_at: i64,
    /// The number of lines.
    pub count: u64,
    /// The last digest of their chain.
    pub digest: String,
}

impl ListHead {
    /// Returns the head of these lines.
    pub fn new(chain: &Chain, seq: u64, issued_at: i64) -> Self {
        Self {
            seq,
            issued_at,
            count: chain.count,
            digest: chain.digest(),
        }
    }
}

/// A verified list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationList {
    /// The signed head as it was received.
    jws: String,
    head: ListHead,
    chain: Chain,
    lines: Arc<Lines>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Lines {
    text: String,
    revoked: RevokedTokens,
}

/// The reason why a list is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RevocationListError {
    /// Its signature or its header.
    #[error("the revocation list is not signed by a key in force ({0})")]
    Signature(InvalidToken),
    /// Its content.
    #[error("the revocation list cannot be read")]
    Malformed,
    /// Lines that the head was not signed for.
    #[error("the lines of the revocation list are not those of its head")]
    Lines,
}

impl From<Malformed> for RevocationListError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl RevocationList {
    /// Verifies a response with the keys in force: a whole list, or the lines after those of `known`.
    ///
    /// # Errors
    /// See [`RevocationListError`].
    pub fn verify(
        keys: &KeySet,
        response: &str,
        known: Option<&Self>,
    ) -> Result<Self, RevocationListError> {
        let (jws, lines) = response.split_once('\n').unwrap_or((response, ""));
        let payload =
            verified_payload(keys, jws, check_type).map_err(RevocationListError::Signature)?;
        let head: ListHead =
            serde_json::from_slice(&payload).map_err(|_| RevocationListError::Malformed)?;
        // The response does not say which it is: the chain that fits the signed head does.
        let begins = known.map(|known| (known.chain, &known.lines));
        for (begin, before) in begins
            .into_iter()
            .chain([(Chain::default(), &Arc::default())])
        {
            let chain = lines.lines().fold(begin, |chain, line| chain.next(line));
            if chain.count == head.count && chain.digest() == head.digest {
                return Ok(Self {
                    jws: jws.to_owned(),
                    head,
                    chain,
                    lines: with(before, lines)?,
                });
            }
        }
        Err(RevocationListError::Lines)
    }

    /// Returns true if the list has all lines of `other`.
    pub fn extends(&self, other: &Self) -> bool {
        self.lines.text.starts_with(&other.lines.text)
    }

    /// Returns the tokens that the list ends.
    pub fn revoked(&self) -> &RevokedTokens {
        &self.lines.revoked
    }

    /// Returns the number that never falls.
    pub const fn seq(&self) -> u64 {
        self.head.seq
    }

    /// Returns the time of the signature in seconds since the epoch.
    pub const fn issued_at(&self) -> i64 {
        self.head.issued_at
    }

    /// Returns the number of lines.
    pub const fn count(&self) -> u64 {
        self.chain.count
    }

    /// Returns the name under which the lines after these are fetched.
    pub fn cursor(&self) -> String {
        self.chain.cursor()
    }
}

/// Returns the response that would be the whole list.
impl fmt::Display for RevocationList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.jws, self.lines.text)
    }
}

fn with(before: &Arc<Lines>, lines: &str) -> Result<Arc<Lines>, Malformed> {
    let mut all = Arc::clone(before);
    if !lines.is_empty() {
        // Copied for new lines alone: most fetches bring nothing but a newer head.
        let all = Arc::make_mut(&mut all);
        for line in lines.lines() {
            all.revoked.add(line.parse()?);
            all.text.push_str(line);
            all.text.push('\n');
        }
    }
    Ok(all)
}

fn check_type(header: &Map) -> Result<(), InvalidToken> {
    let named = header.get("typ").and_then(Value::as_str);
    let is_list = named.is_some_and(|named| named.eq_ignore_ascii_case(LIST_TYPE));
    is_list.then_some(()).ok_or(InvalidToken::Header)
}

#[cfg(test)]
mod tests;
