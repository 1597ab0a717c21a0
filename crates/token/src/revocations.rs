//! The revocation list: access tokens that end before their expiry.
//!
//! The auth server publishes one line for each revocation, in the order of its log, after a head: a compact
//! JWS of its current key with the number of lines and the last digest of their chain. A reader that has the
//! first lines fetches only the others. The lines hold digests, because any client may fetch them, and an id
//! of a user or a token is not public.

mod names;
pub mod statement;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

pub use self::names::{RevocationDigest, TokenDigests};
use crate::invalid::InvalidToken;
use crate::keys::KeySet;
use crate::strict_json::{Map, Value};
use crate::verifier::verified_payload;

/// `typ` of the list, by which no list passes for a token, and no token for a list.
pub const LIST_TYPE: &str = "postern-revocations+jwt";
/// Seconds after which an unchanged head is signed anew, at each multiple since 1970, so that an old head
/// shows its age.
pub const SIGNED_EVERY: i64 = 600;
/// Max length of a response. Half of it is the auth server's own bound; the rest is room for revocations
/// until the server replaces those that are too many.
pub const MAX_LIST_BYTES: usize = 2 * 1024 * 1024;

/// A text that is no digest and no line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a revocation")]
pub struct Malformed;

/// The tokens that one line ends; times in seconds since the epoch, before which they were issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Revoked {
    /// A single token, or the tokens of a session.
    Token(RevocationDigest),
    /// The tokens of a user.
    User(RevocationDigest, i64),
    /// The tokens of an application, or of another issuer.
    Application(RevocationDigest, i64),
    /// All tokens.
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

impl From<Revoked> for String {
    fn from(revoked: Revoked) -> Self {
        revoked.to_string()
    }
}

impl TryFrom<String> for Revoked {
    type Error = Malformed;

    fn try_from(line: String) -> Result<Self, Malformed> {
        line.parse()
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

/// A hasher that takes the beginning of a digest: every part is as random as any other.
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
/// Owners whose tokens end, with the time before which these were issued, in seconds since the epoch.
type IssuedBefore = HashMap<RevocationDigest, i64, BuildHasherDefault<DigestHasher>>;

/// Revocations, by the digests of the tokens that they end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevokedTokens {
    tokens: Digests,
    users: IssuedBefore,
    applications: IssuedBefore,
    everyone: Option<i64>,
}

impl RevokedTokens {
    /// Adds what one line ends; the latest time counts.
    pub fn add(&mut self, revoked: Revoked) {
        match revoked {
            Revoked::Token(id) => drop(self.tokens.insert(id)),
            Revoked::User(id, before) => keep_latest(&mut self.users, id, before),
            Revoked::Application(id, before) => keep_latest(&mut self.applications, id, before),
            Revoked::Everyone(before) => self.everyone = self.everyone.max(Some(before)),
        }
    }

    /// Returns true if this token was revoked.
    pub fn revokes(&self, token: &TokenDigests) -> bool {
        let issued_before = |time: Option<i64>| match (time, token.issued_at) {
            (None, _) => false,
            // A token without `iat` may have been issued at any time.
            (Some(_), None) => true,
            (Some(time), Some(issued)) => issued < time,
        };
        let names = token.names();
        let mut ids = names.token.iter().chain(&names.session);
        let user = names.user.as_ref();
        let application = names.application.as_ref();
        ids.any(|id| self.tokens.contains(id))
            || issued_before(user.and_then(|id| self.before_of_user(id)))
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

    /// Returns the time before which the tokens of an application were revoked.
    pub fn before_of_application(&self, id: &RevocationDigest) -> Option<i64> {
        self.applications.get(id).copied()
    }

    /// Returns the time before which all tokens were revoked.
    pub const fn before_of_everyone(&self) -> Option<i64> {
        self.everyone
    }

    /// Returns the numbers of tokens, users and applications.
    pub fn counts(&self) -> [usize; 3] {
        [self.tokens.len(), self.users.len(), self.applications.len()]
    }
}

fn keep_latest(times: &mut IssuedBefore, id: RevocationDigest, before: i64) {
    let time = times.entry(id).or_insert(before);
    *time = before.max(*time);
}

/// The chain of the lines up to one of them: each digest is over the former digest and the line.
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
    /// The last digest of the lines' chain.
    pub digest: String,
    /// The `iss` of the server's own tokens, which lines name without an issuer.
    #[serde(rename = "iss", default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
}

impl ListHead {
    /// Returns the head of these lines.
    pub fn new(chain: &Chain, seq: u64, issued_at: i64) -> Self {
        Self {
            seq,
            issued_at,
            count: chain.count,
            digest: chain.digest(),
            issuer: None,
        }
    }
}

/// A verified list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationList {
    /// The signed head as it was received.
    jws: String,
    head: ListHead,
    /// The digest of the `iss` in the head.
    issuer: Option<RevocationDigest>,
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
    /// An invalid signature or header.
    #[error("the revocation list is not signed by a key in force ({0})")]
    Signature(InvalidToken),
    /// A content that cannot be read.
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
        // A response may be the whole list or its end: the chain that fits the signed head shows which.
        let begins = known.map(|known| (known.chain, &known.lines));
        let nothing = (Chain::default(), &Arc::default());
        for (mut chain, before) in begins.into_iter().chain([nothing]) {
            for line in lines.lines() {
                chain = chain.next(line);
            }
            if chain.count == head.count && chain.digest() == head.digest {
                let issuer = head.issuer.as_deref();
                return Ok(Self {
                    jws: jws.to_owned(),
                    issuer: issuer.map(RevocationDigest::for_issuer),
                    head,
                    chain,
                    lines: add_lines(before, lines)?,
                });
            }
        }
        Err(RevocationListError::Lines)
    }

    /// Returns true if the list has all lines of `other`.
    pub fn extends(&self, other: &Self) -> bool {
        self.lines.text.starts_with(&other.lines.text)
    }

    /// Returns true if the list ends this token, whose issuer may be another one.
    pub fn revokes(&self, token: &TokenDigests) -> bool {
        self.lines.revoked.revokes(&token.in_list_of(self.issuer))
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

fn add_lines(before: &Arc<Lines>, lines: &str) -> Result<Arc<Lines>, Malformed> {
    // The lines are copied for new ones alone: most fetches bring only a newer head.
    if lines.is_empty() {
        return Ok(Arc::clone(before));
    }
    let mut all = Lines::clone(before);
    for line in lines.lines() {
        all.revoked.add(line.parse()?);
        all.text.push_str(line);
        all.text.push('\n');
    }
    Ok(Arc::new(all))
}

fn check_type(header: &Map) -> Result<(), InvalidToken> {
    match header.get("typ").and_then(Value::as_str) {
        Some(named) if named.eq_ignore_ascii_case(LIST_TYPE) => Ok(()),
        _ => Err(InvalidToken::Header),
    }
}

#[cfg(test)]
mod tests;
