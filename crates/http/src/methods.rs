//! Methods of a setting, and requests whose method may not be the one that the service carries out.

use http::{HeaderMap, Method};

use crate::header_alias::has_any;
use crate::invalid::InvalidRequest;

/// The methods of a setting; an empty list means all methods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Methods(Vec<Method>);

/// An unusable name of a method.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// A name that is not in capitals, or no name.
    #[error("'{0}': a method is written in capital letters, as GET")]
    Malformed(String),
    /// A method that no request may have.
    #[error("TRACE and CONNECT are never allowed")]
    NeverAllowed,
}

/// Fields in which some services take a method in place of the one in the request line.
pub const METHOD_OVERRIDES: [&str; 4] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-rest-method",
];

impl Methods {
    /// Parses the names of methods, of which there is at least one.
    ///
    /// # Errors
    /// The first unusable name.
    pub fn parse<'m>(names: impl IntoIterator<Item = &'m str>) -> Result<Self, MethodError> {
        let mut methods = Vec::new();
        for name in names {
            methods.push(method(name)?);
        }
        if methods.is_empty() {
            Err(MethodError::Malformed(String::new()))
        } else {
            Ok(Self(methods))
        }
    }

    /// Returns true for all methods.
    pub const fn are_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns each method; no method if the setting is for all.
    pub fn each(&self) -> impl Iterator<Item = &Method> {
        self.0.iter()
    }

    /// Returns true if the setting may open a path to `method`. A method that is not certain, `None`, needs a
    /// setting for all methods.
    pub fn allow(&self, method: Option<&Method>) -> bool {
        self.are_all() || method.is_some_and(|method| self.0.contains(method))
    }

    /// Returns true if the setting may restrict `method`: a method that is not certain may be any, and a
    /// service carries out HEAD as GET.
    pub fn may_be(&self, method: Option<&Method>) -> bool {
        match method {
            _ if self.are_all() => true,
            None => true,
            Some(&Method::HEAD) if self.0.contains(&Method::GET) => true,
            Some(method) => self.0.contains(method),
        }
    }
}

fn method(name: &str) -> Result<Method, MethodError> {
    // Methods are case-sensitive (RFC 9110 §9.1): `get` would match no request.
    if !name.bytes().all(may_be_in_method) {
        return Err(MethodError::Malformed(name.to_owned()));
    }
    match Method::from_bytes(name.as_bytes()) {
        Ok(Method::TRACE | Method::CONNECT) => Err(MethodError::NeverAllowed),
        Ok(method) => Ok(method),
        Err(_) => Err(MethodError::Malformed(name.to_owned())),
    }
}

/// Returns the name of a standard method: clients may invent others.
#[must_use]
pub fn standard_method(name: &str) -> Option<&'static str> {
    const STANDARD: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT",
    ];
    STANDARD.into_iter().find(|standard| *standard == name)
}

/// Returns true for a byte of a method's name in a setting.
#[must_use]
pub const fn may_be_in_method(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte == b'-'
}

/// Returns the method that the service carries out; `None` if a field names another one, and for
/// one with lower-case letters, which some services put into capitals.
pub fn certain_method<'m>(method: &'m Method, headers: &HeaderMap) -> Option<&'m Method> {
    let mut bytes = method.as_str().bytes();
    if bytes.any(|byte| byte.is_ascii_lowercase()) || has_any(headers, &METHOD_OVERRIDES) {
        return None;
    }
    Some(method)
}

/// Rejects TRACE, which would echo the token, and CONNECT, whose target is not a path, in any
/// letter case.
///
/// # Errors
/// [`InvalidRequest::MethodNotAllowed`].
pub fn check(method: &Method) -> Result<(), InvalidRequest> {
    let is = |name: &str| method.as_str().eq_ignore_ascii_case(name);
    if is("TRACE") || is("CONNECT") {
        Err(InvalidRequest::MethodNotAllowed)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use token_corpus::fields::headers;

    fn methods(names: &str) -> Result<Methods, MethodError> {
        Methods::parse(names.split(','))
    }

    #[test]
    fn names_are_in_capitals() {
        for names in ["GET", "GET,HEAD", "M-SEARCH", "PROPFIND", "X"] {
            assert!(methods(names).is_ok(), "{names}");
        }
        for names in ["", "get", "GET,", "GET ", "G/T", "*", "GET1"] {
            let error = methods(names);
            assert!(matches!(error, Err(MethodError::Malformed(_))), "{names}");
        }
        for names in ["TRACE", "GET,CONNECT"] {
            assert_eq!(methods(names), Err(MethodError::NeverAllowed), "{names}");
        }
        assert!(Methods::parse([]).is_err());
    }

    #[test]
    fn a_method_opens_itself_and_restricts_what_may_be_it() {
        let (get, all) = (methods("GET").unwrap(), Methods::default());
        for (method, opened, restricted) in [
            (Some(&Method::GET), true, true),
            (Some(&Method::HEAD), false, true),
            (Some(&Method::POST), false, false),
            (None, false, true),
        ] {
            assert_eq!(get.allow(method), opened, "{method:?}");
            assert_eq!(get.may_be(method), restricted, "{method:?}");
            assert!(all.allow(method) && all.may_be(method));
        }
    }

    #[test]
    fn a_method_is_certain_in_capitals_and_without_a_field_for_it() {
        for (method, field, certain) in [
            ("POST", "accept", true),
            ("DELETE", "accept", true),
            ("M-SEARCH", "accept", true),
            ("POST", "x-http-methods", true),
            ("POST", "x-http-method-override", false),
            ("POST", "x_http_method_override", false),
            ("POST", "x-http-method", false),
            ("POST", "x.method~override", false),
            ("POST", "x-rest-method", false),
            ("delete", "accept", false),
            ("Get", "accept", false),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let found = certain_method(&method, &headers(&[(field, "GET")]));
            assert_eq!(found.is_some(), certain, "{method} {field}");
        }
    }
}
