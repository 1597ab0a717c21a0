//! Puts a made-up request before the rules, byte for byte as it would arrive.

use contract::rejection::Rejection;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use crate::admission::{Admission, AdmissionRules, RequestHead, Wire};
use crate::keys::current::KeyState;

/// One GET.
#[derive(Debug)]
pub(super) struct Request<'r> {
    pub(super) target: &'r str,
    /// Header lines; a host is added.
    pub(super) lines: &'r [Vec<u8>],
}

impl Request<'_> {
    /// # Errors
    /// Why it is refused.
    pub(super) fn judged(
        &self,
        rules: &AdmissionRules,
        keys: Result<&KeyState, Rejection>,
        now: i64,
    ) -> Result<Admission, Rejection> {
        let headers = self.headers().ok_or(Rejection::RequestMalformed)?;
        let raw = self.raw();
        let head = RequestHead {
            method: &Method::GET,
            version: Version::HTTP_11,
            headers: &headers,
            wire: Wire::Http1(&raw),
            target_to_send: self.target.as_bytes(),
        };
        rules.admit(head, keys, now)
    }

    fn raw(&self) -> Vec<u8> {
        let mut raw = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n", self.target).into_bytes();
        for line in self.lines {
            raw.extend_from_slice(line);
            raw.extend_from_slice(b"\r\n");
        }
        raw.extend_from_slice(b"\r\n");
        raw
    }

    /// As a parser hands them over: blanks around values taken away.
    fn headers(&self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::HOST, HeaderValue::from_static("localhost"));
        for line in self.lines {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (name, value) = line.split_at(colon);
            let value = value.get(1..)?.trim_ascii();
            headers.append(
                HeaderName::from_bytes(name).ok()?,
                HeaderValue::from_bytes(value).ok()?,
            );
        }
        Some(headers)
    }
}
