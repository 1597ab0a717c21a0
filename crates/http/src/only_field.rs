//! A field that a request may have once.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// A field that a request has more than once: two programs may read different ones.
#[derive(Debug)]
pub struct Repeated;

/// Returns the only field of the name; `None` without one.
///
/// # Errors
/// [`Repeated`]
pub fn only_field<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'h HeaderValue>, Repeated> {
    let mut fields = headers.get_all(name).iter();
    match (fields.next(), fields.next()) {
        (_, Some(_)) => Err(Repeated),
        (field, None) => Ok(field),
    }
}
