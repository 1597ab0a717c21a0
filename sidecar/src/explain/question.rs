//! A request that was not sent, and what of it no client could send.

use http::{HeaderValue, Method};
use pingora::http::RequestHeader;
use serde::{Deserialize, Serialize};

/// A request that was not sent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    pub(super) method: String,
    pub(super) target: String,
    /// Name and value of each field, in their order.
    pub(super) headers: Vec<(String, String)>,
    /// Seconds since the epoch; now where absent.
    pub(super) at: Option<i64>,
}

/// Why nothing can be judged: no client can send this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRequest {
    #[error("the question is not in JSON, or lacks a part")]
    Question,
    #[error("method: this is none of HTTP")]
    Method,
    #[error(
        "target: byte {place} is 0x{byte:02x}, which ends a target or the line; write %{byte:02X}"
    )]
    TargetByte { place: usize, byte: u8 },
    #[error("target: neither a path that begins with a slash nor http:// with a host")]
    Target,
    /// Never the value: it may be a token.
    #[error("header '{0}': this name or this value cannot be sent")]
    Header(String),
}

pub(super) fn request_of(question: &Question) -> Result<RequestHeader, NoRequest> {
    let method = Method::from_bytes(question.method.as_bytes()).map_err(|_| NoRequest::Method)?;
    let target = question.target.as_bytes();
    let cannot_stand = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
    if let Some(at) = target.iter().position(cannot_stand) {
        let (place, byte) = (at + 1, target.get(at).copied().unwrap_or_default());
        return Err(NoRequest::TargetByte { place, byte });
    }
    let mut request = RequestHeader::build(method, target, None).map_err(|_| NoRequest::Target)?;
    for (name, value) in &question.headers {
        let wrong = || NoRequest::Header(name.clone());
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?;
        request
            .append_header(name.clone(), value)
            .map_err(|_| wrong())?;
    }
    Ok(request)
}

/// The header block as it would arrive.
pub(super) fn raw_head(question: &Question) -> Vec<u8> {
    let mut raw = format!("{} {} HTTP/1.1\r\n", question.method, question.target);
    for (name, value) in &question.headers {
        raw += &format!("{name}: {value}\r\n");
    }
    raw += "\r\n";
    raw.into_bytes()
}
