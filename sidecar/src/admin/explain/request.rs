//! A request that was not sent, and what of it no client could send.

use http::{HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};

/// What is asked about.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Name and value of each field, in their order.
    pub(crate) headers: Vec<(String, String)>,
    /// Seconds since the epoch; now where absent.
    pub(crate) at: Option<i64>,
}

/// Why nothing can be judged: no client can send this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRequest {
    #[error("the question is not in JSON, or lacks a part")]
    Question,
    #[error("method: this is none of HTTP")]
    Method,
    #[error("target: byte {place} is 0x{byte:02x}, which ends the line; write %{byte:02X}")]
    TargetByte { place: usize, byte: u8 },
    /// Never the value: it may be a token.
    #[error("header '{0}': this name or this value cannot be sent")]
    Header(String),
}

impl Question {
    /// The header block as it would arrive.
    ///
    /// # Errors
    /// Where what arrives would be another request than the one that is asked about.
    pub(crate) fn raw_head(&self) -> Result<Vec<u8>, NoRequest> {
        Method::from_bytes(self.method.as_bytes()).map_err(|_| NoRequest::Method)?;
        let target = self.target.as_bytes();
        let ends_the_line = |byte: &u8| matches!(byte, b'\r' | b'\n');
        if let Some(at) = target.iter().position(ends_the_line) {
            let (place, byte) = (at + 1, target.get(at).copied().unwrap_or_default());
            return Err(NoRequest::TargetByte { place, byte });
        }
        let mut raw = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            let sendable = HeaderName::from_bytes(name.as_bytes()).is_ok()
                && HeaderValue::from_bytes(value.as_bytes()).is_ok();
            if !sendable {
                return Err(NoRequest::Header(name.clone()));
            }
            raw += &format!("{name}: {value}\r\n");
        }
        raw += "\r\n";
        Ok(raw.into_bytes())
    }
}
