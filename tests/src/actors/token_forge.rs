//! Tokens from text ([`token_corpus::token_forge`]), and the content of issued tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
pub use token_corpus::token_forge::{Forge, Signature, claims, encode, lay_over, signing_input};

/// Returns the payload of a token, decoded but not verified.
///
/// # Panics
/// When the text is not a token.
pub fn payload_of(token: &str) -> Value {
    part_of(token, 1)
}

/// Returns the header of a token, decoded but not verified.
///
/// # Panics
/// When the text is not a token.
pub fn header_of(token: &str) -> Value {
    part_of(token, 0)
}

/// Returns the id of the key that signed a token.
///
/// # Panics
/// When the token has none.
pub fn kid_of(token: &str) -> String {
    text(&header_of(token)["kid"])
}

/// Returns the id of a token.
///
/// # Panics
/// When the token has none.
pub fn jti_of(token: &str) -> String {
    text(&payload_of(token)["jti"])
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn part_of(token: &str, index: usize) -> Value {
    let part = token.split('.').nth(index).expect("a token of three parts");
    let bytes = URL_SAFE_NO_PAD.decode(part).expect("base64url");
    serde_json::from_slice(&bytes).expect("JSON")
}
