//! The only parser of `Authorization`, and of the other places of a token except the [cookie](super::cookie).

use std::collections::HashSet;
use std::fmt;

use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderName};
use postern_http::only_field::only_field;

use crate::invalid::InvalidToken;

/// The unverified token of a request: not empty, only `token68` bytes (RFC 9110 §11.2).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bearer<'a> {
    token: &'a str,
    location: TokenLocation,
}

/// The scheme of a token in `Authorization`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// A bearer token (RFC 6750 §2.1).
    Bearer,
    /// A token with a proof in another field (RFC 9449 §7.1).
    Dpop,
}

impl Scheme {
    const fn name(self) -> &'static str {
        match self {
            Self::Bearer => "Bearer",
            Self::Dpop => "DPoP",
        }
    }
}

/// The place of a token in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenLocation {
    /// `Authorization`.
    Authorization(Scheme),
    /// The protocols of a WebSocket.
    WebSocketProtocol,
    /// The cookie, which a browser sends by itself.
    Cookie,
    /// The token header at this position of the configured ones. A proxy adds it for the browser's
    /// session, which a cookie carries.
    Header(usize),
}

impl TokenLocation {
    /// Returns the position of the token header.
    pub const fn header(self) -> Option<usize> {
        match self {
            Self::Header(position) => Some(position),
            Self::Authorization(_) | Self::WebSocketProtocol | Self::Cookie => None,
        }
    }

    /// Returns true for a place that another site cannot make a browser send.
    pub const fn is_explicit(self) -> bool {
        matches!(self, Self::Authorization(_) | Self::WebSocketProtocol)
    }
}

impl<'a> Bearer<'a> {
    /// Accepts a token that did not come in a header field.
    ///
    /// # Errors
    /// [`InvalidToken::Malformed`] for an empty token, and for a byte that `token68` does not have.
    pub fn new(token: &'a str) -> Result<Self, InvalidToken> {
        token68(token.as_bytes())
    }

    /// Returns the token as it was sent.
    pub const fn as_str(self) -> &'a str {
        self.token
    }

    /// Returns the place that it came from.
    pub const fn location(self) -> TokenLocation {
        self.location
    }

    pub(super) const fn with_location(self, location: TokenLocation) -> Self {
        Self { location, ..self }
    }
}

/// Never prints the token.
impl fmt::Debug for Bearer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer([redacted])")
    }
}

/// Reads the token from the header fields; `None` without an `Authorization` field. The scheme is
/// `Bearer`, or also `DPoP` where it `takes_proofs`.
///
/// A malformed field is an error, never treated as absent.
///
/// # Errors
/// [`InvalidToken::AuthorizationRepeated`], [`InvalidToken::AuthorizationTooLarge`] (before anything is
/// split), [`InvalidToken::AuthorizationScheme`], [`InvalidToken::Malformed`].
pub fn from_headers(
    headers: &HeaderMap,
    max_bytes: usize,
    takes_proofs: bool,
) -> Result<Option<Bearer<'_>>, InvalidToken> {
    let repeated = |_| InvalidToken::AuthorizationRepeated;
    let Some(field) = only_field(headers, &AUTHORIZATION).map_err(repeated)? else {
        return Ok(None);
    };
    // Reject a long field before its bytes are read.
    if field.len() > max_bytes {
        return Err(InvalidToken::AuthorizationTooLarge);
    }
    // Without proofs `DPoP` is an unknown scheme: its token must not count as a bearer token.
    if takes_proofs && let Some(token) = behind_scheme(field.as_bytes(), Scheme::Dpop) {
        return Ok(Some(
            token68(token)?.with_location(TokenLocation::Authorization(Scheme::Dpop)),
        ));
    }
    parse(field.as_bytes()).map(Some)
}

/// Reads the token from the one of these headers that the request has, bare or after `Bearer`; `None`
/// without such a header.
///
/// # Errors
/// [`InvalidToken::AuthorizationRepeated`] for more than one field of all names together, because each
/// is another proxy's word; [`InvalidToken::AuthorizationTooLarge`], [`InvalidToken::Malformed`];
/// [`InvalidToken::Bound`] for a token after `DPoP`.
pub fn from_token_headers<'a>(
    headers: &'a HeaderMap,
    names: &[HeaderName],
    max_bytes: usize,
) -> Result<Option<Bearer<'a>>, InvalidToken> {
    let repeated = |_| InvalidToken::AuthorizationRepeated;
    let mut found = None;
    for (position, name) in names.iter().enumerate() {
        let Some(field) = only_field(headers, name).map_err(repeated)? else {
            continue;
        };
        // Two of the headers may carry tokens of different users: it is not clear which one counts.
        if found.replace((position, field)).is_some() {
            return Err(InvalidToken::AuthorizationRepeated);
        }
    }
    let Some((position, field)) = found else {
        return Ok(None);
    };
    if field.len() > max_bytes {
        return Err(InvalidToken::AuthorizationTooLarge);
    }
    let token = match parse(field.as_bytes()) {
        // A bare token, as many proxies write it: a token has no blank that could end a scheme.
        Err(InvalidToken::AuthorizationScheme) => bounded(field.as_bytes(), max_bytes),
        parsed => parsed,
    };
    Ok(Some(token?.with_location(TokenLocation::Header(position))))
}

/// The protocol before the token in a browser's `new WebSocket(url, ["bearer", token])`.
const WEBSOCKET_PROTOCOL: &[u8] = b"bearer";

/// Reads the token after `bearer` in `Sec-WebSocket-Protocol: chat, bearer, TOKEN`, the only field
/// that a browser lets a WebSocket set; `None` without a `bearer`.
///
/// # Errors
/// [`InvalidToken::AuthorizationTooLarge`], [`InvalidToken::Malformed`];
/// [`InvalidToken::AuthorizationRepeated`] for a second `bearer`; [`InvalidToken::Bound`] for a token after
/// `DPoP`.
pub fn from_websocket_protocol(
    headers: &HeaderMap,
    max_bytes: usize,
) -> Result<Option<Bearer<'_>>, InvalidToken> {
    let mut protocols = websocket_protocols(headers);
    if protocols.all(|it| it != WEBSOCKET_PROTOCOL) {
        return Ok(None);
    }
    // The token is the protocol after `bearer`.
    let token = protocols.next().ok_or(InvalidToken::Malformed)?;
    if token == WEBSOCKET_PROTOCOL || protocols.any(|it| it == WEBSOCKET_PROTOCOL) {
        return Err(InvalidToken::AuthorizationRepeated);
    }
    let token = bounded(token, max_bytes)?;
    Ok(Some(token.with_location(TokenLocation::WebSocketProtocol)))
}

/// Returns the protocols without each `bearer` and the tokens after them, wherever they stand;
/// `None` without a `bearer`.
pub fn websocket_protocols_without_token(headers: &HeaderMap) -> Option<Vec<&[u8]>> {
    let mut left = Vec::new();
    // A set, because a client may send any number of tokens.
    let mut tokens = HashSet::new();
    let mut is_found = false;
    let mut is_token = false;
    for protocol in websocket_protocols(headers) {
        if protocol == WEBSOCKET_PROTOCOL {
            is_found = true;
            is_token = true;
        } else if is_token {
            // The protocol after `bearer` is the token, and is not passed on.
            tokens.insert(protocol);
            is_token = false;
        } else {
            left.push(protocol);
        }
    }
    if !is_found {
        return None;
    }
    // A token that the client also offers as a protocol elsewhere must not pass either.
    left.retain(|protocol| !tokens.contains(protocol));
    Some(left)
}

/// Returns the protocols; empty elements of a list are ignored (RFC 9110 §5.6.1.2).
fn websocket_protocols(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .flat_map(|field| field.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|protocol| !protocol.is_empty())
}

pub(super) fn bounded(token: &[u8], max_bytes: usize) -> Result<Bearer<'_>, InvalidToken> {
    if token.len() > max_bytes {
        return Err(InvalidToken::AuthorizationTooLarge);
    }
    match (token68(token), behind_scheme(token, Scheme::Dpop)) {
        // A token with a proof belongs into `Authorization` (RFC 9449 §7.1).
        (Err(_), Some(bound)) if token68(bound).is_ok() => Err(InvalidToken::Bound),
        (token, _) => token,
    }
}

fn parse(field: &[u8]) -> Result<Bearer<'_>, InvalidToken> {
    token68(behind_scheme(field, Scheme::Bearer).ok_or(InvalidToken::AuthorizationScheme)?)
}

/// Returns the text after a scheme and its blanks; `None` for another scheme.
fn behind_scheme(field: &[u8], scheme: Scheme) -> Option<&[u8]> {
    let end_of_scheme = field.iter().position(|&b| b == b' ').unwrap_or(field.len());
    let (found, rest) = field.split_at(end_of_scheme);
    if !found.eq_ignore_ascii_case(scheme.name().as_bytes()) {
        return None;
    }
    let spaces = rest.iter().take_while(|&&b| b == b' ').count();
    rest.get(spaces..)
}

/// Words that clients write in place of `Bearer` and a blank. Any other word could be a secret.
const OTHER_SCHEMES: &str = "ApiKey AWS4-HMAC-SHA256 Basic Digest DPoP GNAP Hawk HOBA JWT Kerberos Negotiate \
    NTLM OAuth PrivateToken Token";
/// Marks that frameworks put in front of a value, as Express in front of a signed cookie.
const OTHER_MARKS: [&str; 3] = ["Bearer%20", "s:", "s%3A"];

/// Describes the text of a field that should be a token after one of these schemes, or a bare token if it
/// `may_be_bare`. Of the text only a character that no token has is quoted.
pub fn unreadable(field: &[u8], schemes: &[Scheme], may_be_bare: bool) -> String {
    let behind = schemes
        .iter()
        .find_map(|scheme| behind_scheme(field, *scheme));
    let token = match (behind, word_in_front(field)) {
        (Some(token), _) => token,
        // A bare token begins with no word, so the word is the mistake.
        (None, Some(word)) if may_be_bare => {
            return format!("it begins with {word}, and not with the token");
        }
        (None, None) if may_be_bare => field,
        (None, _) if field.is_empty() => return "it is empty".to_owned(),
        (None, word) => {
            let found = word.unwrap_or_else(|| beginning(field));
            return format!("it begins with {found}, and not with `Bearer` and a blank");
        }
    };
    for (number, byte) in (1..).zip(token) {
        if !is_token68(*byte) {
            let found = char::from(*byte);
            return format!("character {number} of the token is {found:?}, which no token has");
        }
    }
    "the token is empty".to_owned()
}

/// Names a known word in place of `Bearer` and a blank.
fn word_in_front(field: &[u8]) -> Option<String> {
    let behind = |word: &str| {
        let (start, rest) = field.split_at_checked(word.len())?;
        start.eq_ignore_ascii_case(word.as_bytes()).then_some(rest)
    };
    if let Some(mark) = OTHER_MARKS.iter().find(|mark| behind(mark).is_some()) {
        return Some(format!("`{mark}`"));
    }
    if let Some([next, ..]) = behind("Bearer") {
        return Some(match *next {
            // Here the token begins right after the scheme.
            next if next != b'=' && is_token68(next) => "`Bearer` without a blank".to_owned(),
            next => format!("`Bearer{}`", char::from(next).escape_debug()),
        });
    }
    for scheme in OTHER_SCHEMES.split(' ') {
        if let Some(rest) = behind(scheme)
            && !rest.first().is_some_and(u8::is_ascii_alphanumeric)
        {
            return Some(format!("`{scheme}`"));
        }
    }
    None
}

/// Describes the beginning of a field without a known word.
fn beginning(field: &[u8]) -> String {
    let is_jwt = || {
        let dots = field.iter().filter(|byte| **byte == b'.');
        field.starts_with(b"eyJ") && dots.count() == 2 && is_all_token68(field)
    };
    match field.first() {
        // The log must not hold a part of a token, so only a character that no token has is quoted.
        Some(first) if !is_token68(*first) => format!("{:?}", char::from(*first)),
        _ if is_jwt() => "a JWT".to_owned(),
        _ => "something else".to_owned(),
    }
}

fn token68(token: &[u8]) -> Result<Bearer<'_>, InvalidToken> {
    if token.is_empty() || !is_all_token68(token) {
        return Err(InvalidToken::Malformed);
    }
    Ok(Bearer {
        token: std::str::from_utf8(token).map_err(|_| InvalidToken::Malformed)?,
        location: TokenLocation::Authorization(Scheme::Bearer),
    })
}

/// Returns true for `token68` bytes. The loops have no early exit, so that the compiler vectorises
/// them: tokens are long and nearly always valid.
fn is_all_token68(bytes: &[u8]) -> bool {
    let all = |step: &[u8]| step.iter().fold(true, |all, &byte| all & is_token68(byte));
    bytes.chunks(64).all(all)
}

const fn is_token68(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
}

#[cfg(test)]
mod tests;
