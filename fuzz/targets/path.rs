//! Paths and pass lists, on any bytes: the path up to the first NUL, then a pattern.
//!
//! An accepted path has to be in the one listed tree, however it is decoded.

#![no_main]

use http::{HeaderMap, Method};
use libfuzzer_sys::fuzz_target;
use postern_contract::interceptor::{AuthRequirement, Interceptor};
use postern_http::path::patterns::PassList;

/// Decodes a path as a careless service does: every escape, and the escapes within escapes.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut path = path.to_vec();
    loop {
        let mut out = Vec::with_capacity(path.len());
        let mut at = 0;
        while let Some(&byte) = path.get(at) {
            let hex = path
                .get(at + 1..at + 3)
                .and_then(|hex| std::str::from_utf8(hex).ok())
                .and_then(|hex| u8::from_str_radix(hex, 16).ok());
            match hex {
                Some(value) if byte == b'%' => {
                    out.push(value);
                    at += 3;
                }
                _ => {
                    out.push(byte);
                    at += 1;
                }
            }
        }
        if out == path {
            return out;
        }
        path = out;
    }
}

/// Resolves dot segments, backslashes and parameters as a careless service does.
fn resolved(path: &[u8]) -> Vec<Vec<u8>> {
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for segment in path.split(|byte| matches!(byte, b'/' | b'\\')) {
        let name: Vec<u8> = segment
            .split(|&byte| byte == b';')
            .next()
            .unwrap_or_default()
            .to_vec();
        match name.as_slice() {
            b"" | b"." => {}
            b".." => {
                segments.pop();
            }
            _ => segments.push(name),
        }
    }
    segments
}

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let (Some(path), pattern) = (parts.next(), parts.next()) else {
        return;
    };
    let is_passed = |list: PassList| {
        let context = "/orders".parse().expect("a context path");
        let interceptor = Interceptor::new(context, list, 8192);
        let headers = HeaderMap::new();
        matches!(
            interceptor.classify(&Method::GET, path, &headers),
            Ok(AuthRequirement::Pass)
        )
    };
    if is_passed(PassList::parse(["/static/**"]).expect("a pattern")) {
        let segments = resolved(&decoded(path));
        let begins = [b"orders".to_vec(), b"static".to_vec()];
        assert!(segments.starts_with(&begins), "{}", path.escape_ascii());
    }
    let pattern = pattern.and_then(|pattern| std::str::from_utf8(pattern).ok());
    if let Some(Ok(list)) = pattern.map(|pattern| PassList::parse([pattern])) {
        let _ = is_passed(list);
    }
});
