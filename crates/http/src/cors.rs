//! Cross-origin requests of browsers (Fetch standard, §3.2 *CORS protocol*) and the origins that may read our
//! responses. Only public documents have a wildcard. Scripts send their token in a header, which only scripts
//! of an allowed origin can set; the browser's cookies count for listed origins alone.

use std::borrow::Cow;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderName, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method};
use url::Url;

use crate::framing::announces_body;
use crate::methods::certain_method;
use crate::only_field::only_field;

/// Response fields that a script may read besides the default ones.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("WWW-Authenticate, Retry-After, X-Request-Id, DPoP-Nonce");
/// The only value of `Access-Control-Allow-Credentials`.
const ALLOWED: HeaderValue = HeaderValue::from_static("true");
/// Seconds that a browser may cache the response to a preflight.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Max length of a list of requested fields: our response, which may wait for a client that does not read,
/// has the same length.
const MAX_REQUESTED: usize = 1024;

/// An origin as browsers write it (RFC 6454 §6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(HeaderValue);

impl Origin {
    /// Returns the origin, such as `https://app.example:8443`.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Origin {
    type Err = Cow<'static, str>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const MALFORMED: &str = "must be http://HOST or https://HOST, or an app's origin such as \
                                 capacitor://localhost, with a port unless it is the usual one, in lower \
                                 case, without a user and a path";
        // Any attacker's page can have these origins.
        if matches!(text, "*" | "null") {
            return Err("is not one origin: '*' and 'null' are not supported".into());
        }
        // The host of a URL may hold further characters, which no browser sends.
        let is_plain =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-._:/[]".contains(&b);
        let url: Url = text.parse().map_err(|_| MALFORMED)?;
        let is_origin = match url.scheme() {
            "http" | "https" => url.origin().ascii_serialization() == text,
            // Pages of these schemes have the origin `null`, or do not exist.
            "file" | "ftp" | "ws" | "wss" => false,
            // The scheme of an app: the standard of URLs has no origin for it, its web view has.
            _ => {
                !matches!(url.host_str(), None | Some(""))
                    && url.path().is_empty()
                    && url.as_str() == text
            }
        };
        if !is_origin || !text.bytes().all(is_plain) {
            let meant = url.origin().ascii_serialization();
            let is_usable = meant != "null" && meant != text && meant.bytes().all(is_plain);
            return Err(if is_usable {
                format!("{MALFORMED}: browsers send {meant}").into()
            } else {
                MALFORMED.into()
            });
        }
        match HeaderValue::from_str(text) {
            Ok(origin) => Ok(Self(origin)),
            Err(_) => Err(MALFORMED.into()),
        }
    }
}

/// The origins whose scripts may read our responses; empty by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedOrigins(Vec<Origin>);

impl AllowedOrigins {
    /// Allows these origins and no others.
    pub const fn new(origins: Vec<Origin>) -> Self {
        Self(origins)
    }

    /// Returns the request's origin if it is allowed. A request with several `Origin` fields has no
    /// origin.
    pub fn allowed<'h>(&self, headers: &'h HeaderMap) -> Option<&'h HeaderValue> {
        let origin = only_field(headers, &ORIGIN).ok()??;
        let is_allowed = self.0.iter().any(|allowed| allowed.0 == origin);
        is_allowed.then_some(origin)
    }

    /// Returns true for a preflight of an allowed origin: OPTIONS, `Origin`, and
    /// `Access-Control-Request-Method`, without another method in a field and without a body, which
    /// browsers never send along.
    pub fn is_preflight(&self, method: &Method, headers: &HeaderMap) -> bool {
        is_preflight(method, headers) && self.allowed(headers).is_some()
    }

    /// Returns the response fields that let an allowed origin read our response to this request; to a request
    /// with the browser's cookies only if the origin is among `with_cookies` too.
    pub fn response_fields(
        &self,
        headers: &HeaderMap,
        with_cookies: &Self,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let mut fields = Vec::new();
        if self.0.is_empty() {
            return fields;
        }
        // Sent to other origins too: else a cache would serve them the response to an allowed origin.
        fields.push((VARY, HeaderValue::from_name(ORIGIN)));
        if let Some(origin) = self.allowed(headers) {
            fields.push((ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone()));
            fields.push((ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED));
            if with_cookies.allowed(headers).is_some() {
                fields.push((ACCESS_CONTROL_ALLOW_CREDENTIALS, ALLOWED));
            }
            fields.extend(requested_fields(headers));
        }
        fields
    }
}

/// Returns true for a preflight of any origin.
pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
        && certain_method(method, headers).is_some()
        && !announces_body(headers)
}

/// Returns the response fields that let every page read a public document, which is the same for all, so that
/// no cookies are needed.
pub fn public_fields(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = vec![(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"))];
    fields.extend(requested_fields(headers));
    fields
}

/// Returns the field that allows all requested fields: libraries for traces add fields of their own.
fn requested_fields(headers: &HeaderMap) -> Option<(HeaderName, HeaderValue)> {
    let requested = headers.get(ACCESS_CONTROL_REQUEST_HEADERS)?;
    if requested.len() <= MAX_REQUESTED {
        Some((ACCESS_CONTROL_ALLOW_HEADERS, requested.clone()))
    } else {
        None
    }
}

/// Returns the fields of a preflight response besides [`AllowedOrigins::response_fields`], which allow these
/// methods.
pub fn preflight_fields(methods: &'static str) -> [(HeaderName, HeaderValue); 2] {
    let methods = HeaderValue::from_static(methods);
    [
        (ACCESS_CONTROL_ALLOW_METHODS, methods),
        (ACCESS_CONTROL_MAX_AGE, MAX_AGE),
    ]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use token_corpus::fields::headers;

    fn allowed() -> AllowedOrigins {
        AllowedOrigins::new(vec!["https://app.example".parse().unwrap()])
    }

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        let origins = "http://localhost:9000 https://a.b-c_d.example http://127.0.0.1:1 https://[::1]:8443 \
             https://[2001:db8::1] http://a:443 capacitor://localhost ionic://localhost \
             tauri://localhost app://. app://obsidian.md web+app://a:80 x://[::1]:1 \
             chrome-extension://aapbdbdomjkkjkaonfhkkikfgjllcleb \
             moz-extension://2c127fa4-62c7-7e4f-90e5-472b45eecfdc";
        for origin in origins.split(' ') {
            assert_eq!(origin.parse::<Origin>().unwrap().as_str(), origin);
        }
        let others = "* null app.example ftp://app.example https:// https://App.example https://app.example/ \
             https://*.example https://[] https://[x] https://[FE80::1] https://app.example: \
             https://app.example:+1 https://app.example:99999 https://app.example;script-src \
             https://user@app.example https://app.example:443 http://app.example:80 https://a%2eb \
             file:// file://localhost file:/// ftp://a ws://a wss://a blob:https://a data:a \
             capacitor: capacitor:// capacitor:localhost Capacitor://localhost capacitor://LOCALHOST \
             capacitor://localhost/ capacitor://localhost/a capacitor://localhost: app://.:080 \
             capacitor://u@localhost capacitor://localhost?a capacitor://localhost#a capacitor://* \
             capacitor://a;b 1x://a -x://a x_y://a capacitor://a,b capacitor://null@a ://a";
        for other in others
            .split(' ')
            .chain(["", "https://app.example; script-src *"])
        {
            assert!(other.parse::<Origin>().is_err(), "{other}");
        }
    }

    #[test]
    fn lesson_c23_a_preflight_is_whole_and_of_an_allowed_origin() {
        let whole = [
            ("origin", "https://app.example"),
            ("access-control-request-method", "PUT"),
        ];
        assert!(allowed().is_preflight(&Method::OPTIONS, &headers(&whole)));
        assert!(!allowed().is_preflight(&Method::GET, &headers(&whole)));
        let [origin, method] = whole;
        for fields in [
            &[origin][..],
            &[method],
            &[("origin", "https://evil.example"), method],
            &[("origin", "https://app.example.evil"), method],
            &[("origin", "https://APP.example"), method],
            &[origin, ("origin", "https://evil.example"), method],
            &[origin, method, ("x_http_method_override", "POST")],
            &[origin, method, ("content-length", "1")],
            &[origin, method, ("transfer-encoding", "chunked")],
        ] {
            let is_preflight = allowed().is_preflight(&Method::OPTIONS, &headers(fields));
            assert!(!is_preflight, "{fields:?}");
        }
        assert!(!AllowedOrigins::default().is_preflight(&Method::OPTIONS, &headers(&whole)));
    }

    #[test]
    fn a_response_names_the_origin_it_is_for_and_no_other() {
        let none = AllowedOrigins::default();
        let of = |origin| allowed().response_fields(&headers(&[("origin", origin)]), &none);
        let app = HeaderValue::from_static("https://app.example");
        assert!(of("https://app.example").contains(&(ACCESS_CONTROL_ALLOW_ORIGIN, app)));
        let vary = [(VARY, HeaderValue::from_name(ORIGIN))];
        assert_eq!(of("https://evil.example"), vary);
        for (length, is_allowed) in [(MAX_REQUESTED, true), (MAX_REQUESTED + 1, false)] {
            let mut preflight = headers(&[("origin", "https://app.example")]);
            let requested = HeaderValue::from_str(&"x".repeat(length)).unwrap();
            preflight.insert(ACCESS_CONTROL_REQUEST_HEADERS, requested);
            let fields = allowed().response_fields(&preflight, &none);
            let allows = |(name, _): &(HeaderName, _)| *name == ACCESS_CONTROL_ALLOW_HEADERS;
            assert_eq!(fields.iter().any(allows), is_allowed, "{length}");
        }
        let fields = headers(&[("origin", "https://app.example")]);
        assert_eq!(none.response_fields(&fields, &allowed()), []);
    }

    #[test]
    fn credentials_are_for_origins_that_may_read_and_send_cookies() {
        const BOTH: &str = "https://both.example";
        let origins = |texts: &[&str]| {
            let origins = texts.iter().map(|text| text.parse().unwrap());
            AllowedOrigins::new(origins.collect())
        };
        let may_read = origins(&[BOTH, "https://reads.example"]);
        let may_send = origins(&[BOTH, "https://sends.example"]);
        for (sent, expected) in [
            (&[BOTH][..], true),
            (&["https://reads.example"], false),
            (&["https://sends.example"], false),
            (&["https://evil.example"], false),
            (&["null"], false),
            (&["*"], false),
            (&["https://both.example.evil"], false),
            (&["https://BOTH.example"], false),
            (&["https://both.example:443"], false),
            (&["https://both.example, https://both.example"], false),
            (&[BOTH, BOTH], false),
            (&[BOTH, "https://evil.example"], false),
            (&[], false),
        ] {
            let sent: Vec<_> = sent.iter().map(|origin| ("origin", *origin)).collect();
            let fields = may_read.response_fields(&headers(&sent), &may_send);
            let value = |of: HeaderName| {
                let mut values = fields.iter().filter(move |(name, _)| *name == of);
                let value = values.next().map(|(_, value)| value.clone());
                assert!(values.next().is_none(), "{sent:?}");
                value
            };
            let credentials = value(ACCESS_CONTROL_ALLOW_CREDENTIALS);
            assert_eq!(credentials.is_some(), expected, "{sent:?}");
            if expected {
                // Fetch standard §3.2.5: only with the origin itself.
                assert_eq!(value(ACCESS_CONTROL_ALLOW_ORIGIN).unwrap(), BOTH);
            }
            assert_eq!(value(VARY).unwrap(), "origin");
        }
    }
}
