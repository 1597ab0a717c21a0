//! Requests, each with its next step.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::*;
use token_corpus::fields::headers;

fn interceptor() -> Interceptor {
    Interceptor::new(
        "/orders".parse().unwrap(),
        PassList::parse(["/static/**", "/current/**"]).unwrap(),
        100,
    )
}

fn kind_of(
    interceptor: &Interceptor,
    method: &Method,
    path: &str,
    fields: &[(&str, &str)],
) -> String {
    match interceptor.classify(method, path.as_bytes(), &headers(fields)) {
        Ok(AuthRequirement::Pass) => "pass".into(),
        Ok(AuthRequirement::Preflight { of_user_details }) => {
            format!("preflight {of_user_details}")
        }
        Ok(AuthRequirement::NeedsToken(_)) => "token".into(),
        Ok(AuthRequirement::UserDetails(_)) => "user".into(),
        Err(rejection) => rejection.reason().into(),
    }
}

#[test]
fn the_user_details_endpoint_has_one_path() {
    for (path, is_of_endpoint) in [
        ("/orders/current/user/details", true),
        ("/orders/current/user/details/", false),
        ("/orders/current/user", false),
        ("/current/user/details", false),
        ("/orders//current/user/details", false),
    ] {
        let found = interceptor().is_user_details(path.as_bytes());
        assert_eq!(found, is_of_endpoint, "{path}");
    }
}

#[test]
fn method_and_path_decide_and_no_other_field_opens_a_door() {
    let (open, list) = ("/orders/static/x", "/orders/list");
    let details = "/orders/current/user/details";
    let bearer = &[("authorization", "Bearer a.b.c")][..];
    let two = &[("authorization", "Bearer ,"), ("authorization", "Basic x")];
    for (method, path, fields, expected) in [
        (Method::HEAD, details, bearer, "user"),
        (Method::POST, details, bearer, "method_not_allowed"),
        (Method::TRACE, open, bearer, "method_not_allowed"),
        (Method::CONNECT, list, bearer, "method_not_allowed"),
        (Method::DELETE, list, bearer, "token"),
        // There the token is not read.
        (Method::POST, open, two, "pass"),
    ] {
        let found = kind_of(&interceptor(), &method, path, fields);
        assert_eq!(found, expected, "{method} {path}");
    }
    let names = "x-original-url x-rewrite-url x-forwarded-uri x-http-method-override";
    for name in names.split(' ') {
        let field = [(name, open)];
        let found = kind_of(&interceptor(), &Method::GET, list, &field);
        assert_eq!(found, "token_missing", "{name}");
    }
}

#[test]
fn a_pattern_opens_a_destination_as_a_path() {
    let moves = Method::from_bytes(b"MOVE").unwrap();
    for (method, destination, expected) in [
        (&moves, "/orders/static/b", "pass"),
        (&moves, "/orders/list", "token_missing"),
        (&moves, "/orders/static/%2e%2e/list", "token_missing"),
        (&moves, "/orders/STATIC/b", "token_missing"),
        (&Method::PUT, "/orders/list", "pass"),
    ] {
        let fields = [("destination", destination)];
        let found = kind_of(&interceptor(), method, "/orders/static/a", &fields);
        assert_eq!(found, expected, "{method} {destination}");
    }
}

#[test]
fn lesson_c23_a_preflight_passes_by_origin_never_by_path() {
    let method = ("access-control-request-method", "DELETE");
    let requesting = |of| [("origin", of), method];
    let allowed = AllowedOrigins::new(vec!["https://app.example".parse().unwrap()]);
    let with = interceptor().with_allowed_origins(allowed);
    let kind = |interceptor: &Interceptor, path: &str, of| {
        kind_of(interceptor, &Method::OPTIONS, path, &requesting(of))
    };
    let (app, evil) = ("https://app.example", "https://evil.example");
    let details = "/orders/current/user/details";
    for (path, of, expected) in [
        ("/orders/list", app, "preflight false"),
        ("/orders//list", app, "preflight false"),
        (details, app, "preflight true"),
        ("/orders/../x", app, "path_not_canonical"),
        ("/orders/list", evil, "token_missing"),
        (details, evil, "method_not_allowed"),
    ] {
        assert_eq!(kind(&with, path, of), expected, "{path} {of}");
    }
    assert_eq!(kind(&interceptor(), "/orders/list", app), "token_missing");
}

#[test]
fn on_an_optional_path_a_token_may_be_missing_but_not_bad() {
    let interceptor = interceptor().with_optional(PassList::parse(["/feed/**"]).unwrap());
    for (path, authorization, expected) in [
        ("/orders/feed/1", None, "pass"),
        ("/orders/feed/1", Some("Bearer a.b.c"), "token"),
        ("/orders/feed/1", Some("Bearer ,"), "token_malformed"),
        ("/orders/feed/1", Some(""), "authorization_scheme"),
        ("/orders/feed//1", None, "token_missing"),
        ("/orders/list", None, "token_missing"),
        ("/feed/1", None, "token_missing"),
    ] {
        let fields = authorization.map(|value| ("authorization", value));
        let found = kind_of(&interceptor, &Method::GET, path, fields.as_slice());
        assert_eq!(found, expected, "{path} {authorization:?}");
    }
}
