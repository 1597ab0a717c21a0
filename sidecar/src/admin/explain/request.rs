//! The input of `explain`: a request from memory, limited to what a client could send.

use http::{HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};

/// The request to explain.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Name and value of each field, in their order.
    pub(crate) headers: Vec<(String, String)>,
    /// Seconds since the epoch; absent: now.
    pub(crate) at: Option<i64>,
}

/// The part that no client can send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the request is not in JSON, or lacks a member")]
    ExplainRequest,
    #[error("method: not valid in HTTP")]
    Method,
    #[error("target: byte {position} is 0x{byte:02x}, which ends the line; write %{byte:02X}")]
    TargetByte { position: usize, byte: u8 },
    /// Without the value, which may be a token.
    #[error("header '{0}': this name or this value cannot be sent")]
    Header(String),
}

impl ExplainRequest {
    /// Returns the header block as it would arrive.
    ///
    /// # Errors
    /// For input that would arrive as another request.
    pub(crate) fn raw_head(&self) -> Result<Vec<u8>, RequestError> {
        Method::from_bytes(self.method.as_bytes()).map_err(|_| RequestError::Method)?;
        let target = self.target.as_bytes();
        let ends_the_line = |byte: &u8| matches!(byte, b'\r' | b'\n');
        if let Some(at) = target.iter().position(ends_the_line) {
            let (position, byte) = (at + 1, target.get(at).copied().unwrap_or_default());
            return Err(RequestError::TargetByte { position, byte });
        }
        let mut raw = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            let sendable = HeaderName::from_bytes(name.as_bytes()).is_ok()
                && HeaderValue::from_bytes(value.as_bytes()).is_ok();
            if !sendable {
                return Err(RequestError::Header(name.clone()));
            }
            raw += &format!("{name}: {value}\r\n");
        }
        raw += "\r\n";
        Ok(raw.into_bytes())
    }
}
