//! Which rules are for a request.

use super::*;

fn with_request<T>(
    method: &str,
    path: &str,
    fields: &[Field<'_>],
    of: impl FnOnce(RuleRequest<'_>) -> T,
) -> T {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    of(RuleRequest {
        method: &method,
        headers: &headers(fields),
        path: path.as_bytes(),
    })
}

fn matching(rules: &AccessRules, method: &str, path: &str, fields: &[Field<'_>]) -> Vec<usize> {
    let context = "/orders".parse().unwrap();
    with_request(method, path, fields, |request| {
        rules.matching(request, &context).to_vec()
    })
}

#[test]
fn all_rules_for_a_request_are_found() {
    let any = Requirement::default;
    let rules = AccessRules::new(
        vec![
            rule(&[], &["/admin/**"], any()),
            rule(&["DELETE"], &["/**"], any()),
            rule(&["GET"], &["/admin/users", "/reports/*"], any()),
        ],
        Unmatched::Token,
    );
    let overridden = ("x-http-method-override", "DELETE");
    for (method, path, fields, expected) in [
        ("GET", "/orders/1", &[][..], &[][..]),
        ("DELETE", "/orders/1", &[], &[1]),
        ("GET", "/orders/admin", &[], &[0]),
        ("GET", "/orders/admin/users", &[], &[0, 2]),
        ("HEAD", "/orders/admin/users", &[], &[0, 2]),
        ("DELETE", "/orders/admin/users", &[], &[0, 1]),
        ("POST", "/orders/admin/users", &[overridden], &[0, 1, 2]),
        ("POST", "/orders/1", &[overridden], &[1]),
        // Spellings that a service may take for the same path.
        ("GET", "/orders/ADMIN/Users/", &[], &[0, 2]),
        ("GET", "/Orders/admin./users.json", &[], &[0, 2]),
        ("GET", "/orders/reports/", &[], &[2]),
        ("GET", "/orders/administrators", &[], &[]),
        // Paths that could be any.
        ("GET", "/orders//1", &[], &[0, 2]),
        ("DELETE", "/orders/%61dmin", &[], &[0, 1]),
        ("GET", "/orders/admin;v=1", &[], &[0, 2]),
        ("GET", "/elsewhere", &[], &[0, 2]),
        ("GET", "/orders/../admin", &[], &[0, 2]),
    ] {
        let found = matching(&rules, method, path, fields);
        assert_eq!(found, expected, "{method} {path}");
    }
    let of_one = AccessRules::new(vec![rule(&["DELETE"], &["/**"], any())], Unmatched::Token);
    assert_eq!(matching(&of_one, "POST", "/orders/1", &[overridden]), [0]);
}

/// No default lets a request pass whose path is not compared to its end, and every rule is for it.
#[test]
fn a_path_of_too_many_steps_could_be_any() {
    let pattern = |number| format!("/**/*a*b*c{number}/**/z{number}*");
    let mut rules: Vec<_> = (0..255)
        .map(|number| rule(&[], &[&pattern(number)], Requirement::default()))
        .collect();
    rules.push(rule(&[], &["/**"], Requirement::default()));
    let every: Vec<_> = (0..rules.len()).collect();
    let rules = AccessRules::new(rules, Unmatched::Deny);
    let (context, holds) = (
        ContextPath::default(),
        vec![RuleVerdict::Holds; every.len()],
    );
    let (mut named, mut disguised) = (0, 0);
    for length in (1..4_000).step_by(41) {
        let (found, is_named) = with_request("GET", &"/a".repeat(length), &[], |request| {
            let is_named = rules.check(request, &context, &holds).is_ok();
            (rules.matching(request, &context), is_named)
        });
        // What lets a request pass restricts it as well.
        assert!(!is_named || found.contains(&255), "{length}");
        named += usize::from(is_named);
        disguised += usize::from(!is_named);
        assert!(is_named || found[..] == every, "{length}");
    }
    assert!(named > 1 && disguised > 1, "{named} {disguised}");
}

#[test]
fn a_rule_is_for_what_its_wildcards_name_in_every_spelling() {
    for (pattern, path, is_for) in [
        ("/files/*.*", "/files/secret.", true),
        ("/files/*.*", "/FILES/secret.%20", true),
        ("/files/*.*", "/files/secret./", true),
        ("/v?", "/v1", true),
        ("/v?", "/v%C3%9F", true),
        ("/v?", "/VSS", true),
        ("/v?", "/v10", false),
        ("/one/?", "/one/%EF%AC%81", true),
        ("/q/??", "/q/a.", true),
        ("/q/??", "/q/a%20", true),
        ("/q/??", "/q/a%C3%9F", true),
        ("/q/??", "/q/abc", false),
        ("/a%20a?", "/ab", false),
        ("/%C3%89?", "/e%CC%81x", true),
        ("/*.js", "/a.json", false),
        ("/*.js", "/a.JS.", true),
        ("/a*.b", "/a.bc.d", false),
        ("/admin/**", "/adm%C4%B0n/x", true),
        ("/stra%C3%9Fe", "/STRA%E1%BA%9EE", true),
        ("/d%C3%A9j%C3%A0", "/de%CC%81ja%CC%80", true),
    ] {
        let rules = vec![rule(&[], &[pattern], Requirement::default())];
        let rules = AccessRules::new(rules, Unmatched::Token);
        let found = matching(&rules, "GET", &format!("/orders{path}"), &[]);
        assert_eq!(!found.is_empty(), is_for, "{pattern} {path}");
    }
}

#[test]
fn a_rule_for_the_destination_is_for_the_request() {
    let rules = |unmatched| {
        let paths = ["/list/**", "/admin/**"];
        let rules = paths.map(|path| rule(&[], &[path], Requirement::default()));
        AccessRules::new(rules.to_vec(), unmatched)
    };
    for (method, destination, expected) in [
        ("MOVE", "/orders/list/b", &[0][..]),
        ("MOVE", "/orders/admin/b", &[0, 1]),
        ("COPY", "http://a/orders/ADMIN/b?c", &[0, 1]),
        ("COPY", "/elsewhere", &[0, 1]),
        ("MOVE", "/a/../b", &[0, 1]),
        ("GET", "/orders/admin/b", &[0]),
    ] {
        let (path, fields) = ("/orders/list/a", [("destination", destination)]);
        let found = matching(&rules(Unmatched::Token), method, path, &fields);
        assert_eq!(found, expected, "{method} {destination}");
        let (deny, holds) = (rules(Unmatched::Deny), [RuleVerdict::Holds; 2]);
        let context = "/orders".parse().unwrap();
        let is_allowed = with_request(method, path, &fields, |request| {
            deny.check(request, &context, &holds).is_ok()
        });
        let is_named =
            !matches!(destination, "/elsewhere" | "/a/../b") && !destination.contains("ADMIN");
        assert_eq!(is_allowed, is_named, "{method} {destination}");
    }
}

#[test]
fn the_first_broken_rule_decides_otherwise_the_default() {
    let rules = |unmatched| {
        let rules = vec![
            rule(&[], &["/a/**"], scope(&["s"])),
            rule(&[], &["/a/b"], claim("c", json!([1]))),
        ];
        AccessRules::new(rules, unmatched)
    };
    let context = ContextPath::default();
    let check = |rules: &AccessRules, path: &str, verdicts: &[RuleVerdict]| {
        with_request("GET", path, &[], |request| {
            let broken = rules.check(request, &context, verdicts).err()?;
            Some((broken.rejection, broken.rule))
        })
    };
    use RuleVerdict::{Holds, LacksClaim, LacksScope};
    let token = rules(Unmatched::Token);
    let lacks_scope = Some((Rejection::InsufficientScope, Some(0)));
    let lacks_claim = |rule| Some((Rejection::ClaimNotAllowed, Some(rule)));
    for (path, verdicts, expected) in [
        ("/a/b", &[Holds, Holds][..], None),
        ("/a/b", &[LacksScope, LacksClaim], lacks_scope),
        ("/a/b", &[Holds, LacksClaim], lacks_claim(1)),
        ("/a/x", &[Holds, LacksClaim], None),
        ("/x", &[LacksScope, LacksClaim], None),
        ("/a/x", &[], lacks_claim(0)),
    ] {
        assert_eq!(check(&token, path, verdicts), expected, "{path}");
    }
    let deny = rules(Unmatched::Deny);
    assert_eq!(check(&deny, "/a/x", &[Holds, LacksClaim]), None);
    // A rule allows the spelling that it is written in, and restricts the others.
    for path in ["/x", "/x;y", "//x", "/A/x", "/a./x", "/a;b/x", "/%61/x"] {
        let expected = Some((Rejection::NoRule, None));
        assert_eq!(check(&deny, path, &[Holds, Holds]), expected, "{path}");
    }
    assert_eq!(check(&AccessRules::default(), "/x", &[]), None);
}

#[test]
fn a_rule_accepts_its_methods_only_with_default_deny() {
    let read = rule(&["GET"], &["/a"], Requirement::default());
    let rules = AccessRules::new(vec![read], Unmatched::Deny);
    for (method, fields, is_allowed) in [
        ("GET", &[][..], true),
        ("HEAD", &[], true),
        ("POST", &[], false),
        ("GET", &[("x-http-method-override", "DELETE")], false),
    ] {
        let context = ContextPath::default();
        let checked = with_request(method, "/a", fields, |request| {
            rules
                .check(request, &context, &[RuleVerdict::Holds])
                .is_ok()
        });
        assert_eq!(checked, is_allowed, "{method} {fields:?}");
    }
}
