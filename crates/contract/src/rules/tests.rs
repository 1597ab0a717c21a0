//! Rules by method, path, scope and claim.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use super::*;
use token_corpus::fields::headers;

fn rule(methods: &[&str], paths: &[&str], requirement: Requirement) -> Rule {
    let methods = match methods {
        [] => Methods::default(),
        names => Methods::parse(names.iter().copied()).unwrap(),
    };
    Rule {
        name: paths.concat(),
        methods,
        paths: paths.iter().map(|path| path.parse().unwrap()).collect(),
        requirement,
    }
}

fn scope(scopes: &[&str]) -> Requirement {
    Requirement {
        scope: scopes.iter().map(ToString::to_string).collect(),
        claims: Vec::new(),
    }
}

fn claim(name: &str, values: Value) -> Requirement {
    Requirement {
        scope: Vec::new(),
        claims: vec![RequiredClaim {
            text: name.to_owned(),
            name: name.parse().unwrap(),
            values: serde_json::from_value(values).unwrap(),
            by_words: false,
        }],
    }
}

fn verdict(requirement: Requirement, payload: &Value) -> RuleVerdict {
    let rules = AccessRules::new(vec![rule(&[], &["/**"], requirement)], Unmatched::Token);
    let members: Map = serde_json::from_value(payload.clone()).unwrap();
    let claims = rules.claims().iter();
    let claims: Vec<_> = claims.map(|name| name.find(&members).cloned()).collect();
    let verdicts = rules.verdicts(&claims);
    let facts = rules.describe(0, &members).unwrap();
    let holds = verdicts[0] == RuleVerdict::Holds;
    assert_eq!(facts.starts_with('✓'), holds, "{facts}");
    verdicts[0]
}

#[test]
fn a_scope_stands_in_scope_or_scp_as_text_or_list() {
    use RuleVerdict::{Holds, LacksScope};
    for (payload, expected) in [
        (json!({"scope": "orders:read"}), Holds),
        (json!({"scope": "openid orders:read profile"}), Holds),
        (json!({"scp": "profile orders:write"}), Holds),
        (json!({"scp": ["profile", "orders:write"]}), Holds),
        (json!({"scope": ["orders:read"]}), Holds),
        (json!({"scope": "openid", "scp": "orders:read"}), Holds),
        (json!({}), LacksScope),
        (json!({"scope": ""}), LacksScope),
        (json!({"scope": "orders:reader"}), LacksScope),
        (json!({"scope": "ORDERS:READ"}), LacksScope),
        (json!({"scope": "orders:read,x"}), LacksScope),
        (json!({"scope": "x\torders:read"}), LacksScope),
        (json!({"scp": ["profile orders:read"]}), LacksScope),
        (json!({"scp": [["orders:read"]]}), LacksScope),
        (json!({"scope": {"orders:read": true}}), LacksScope),
        (json!({"scopes": "orders:read"}), LacksScope),
    ] {
        let found = verdict(scope(&["orders:read", "orders:write"]), &payload);
        assert_eq!(found, expected, "{payload}");
    }
}

#[test]
fn a_claim_is_a_value_or_a_list_that_has_one() {
    use RuleVerdict::{Holds, LacksClaim};
    let roles = claim("/realm_access/roles", json!(["admin", "ops"]));
    let of_roles = |roles: Value| json!({"realm_access": {"roles": roles}});
    let tenant = claim("tenant", json!([7, true, "a b"]));
    for (requirement, payload, expected) in [
        (&roles, of_roles(json!(["ops"])), Holds),
        (&roles, of_roles(json!("admin")), Holds),
        (&roles, of_roles(json!(["Admin", "op"])), LacksClaim),
        (&roles, of_roles(json!([])), LacksClaim),
        (&roles, of_roles(json!([["admin"]])), LacksClaim),
        (&roles, of_roles(json!("admin ops")), LacksClaim),
        (&roles, json!({"realm_access": null}), LacksClaim),
        (
            &roles,
            json!({"/realm_access/roles": ["admin"]}),
            LacksClaim,
        ),
        (&tenant, json!({"tenant": 7}), Holds),
        (&tenant, json!({"tenant": true}), Holds),
        (&tenant, json!({"tenant": ["x", "a b"]}), Holds),
        (&tenant, json!({"tenant": "7"}), LacksClaim),
        (&tenant, json!({"tenant": 7.0}), Holds),
        (&tenant, json!({"tenant": 7.5}), LacksClaim),
        (&tenant, json!({"tenant": false}), LacksClaim),
        (&tenant, json!({"tenant": null}), LacksClaim),
        (&Requirement::default(), json!({}), Holds),
    ] {
        let requirement = requirement.clone();
        assert_eq!(verdict(requirement, &payload), expected, "{payload}");
    }
}

#[test]
fn a_member_of_an_object_counts_if_it_grants_what_its_name_says() {
    let roles = || claim("roles", json!(["admin", 7]));
    for granted in [
        json!(true),
        json!({"3061": "shop.id.example"}),
        json!(["a"]),
        json!({"a": {"b": [true, "c"]}}),
        json!({"3061": "shop-7.id.example", "7": "other.example"}),
        // Keycloak's `resource_access`, and what lists hold.
        json!({"roles": ["view"]}),
        json!({"enabled": true, "of": {"7": "b.xn--p1ai"}}),
    ] {
        let payload = json!({"roles": {"reader": true, "admin": granted}});
        assert_eq!(verdict(roles(), &payload), RuleVerdict::Holds, "{payload}");
    }
    for denied in [
        json!(false),
        json!(null),
        json!(0),
        json!(1),
        json!(""),
        json!("false"),
        json!("a"),
        json!([]),
        json!({}),
        json!([false]),
        json!({"enabled": false}),
        // States, whatever they say, and beside a domain too.
        json!("true"),
        json!("shop.example"),
        json!({"enabled": "false"}),
        json!({"enabled": "true"}),
        json!({"status": "revoked"}),
        json!({"status": "active"}),
        json!({"status": "account.disabled"}),
        json!({"7": ".no"}),
        json!({"7": "a..io"}),
        json!([{"status": "revoked"}]),
        json!({"3061": "shop.example", "status": "revoked"}),
        json!({"3061": "shop.example", "7": 0}),
        json!({"a": {"b": {"c": "no"}}}),
        // No domains: times, numbers, addresses, ids, and what is cut off.
        json!({"until": "2020-01-01T00:00:00.000Z"}),
        json!({"level": "0.0"}),
        json!({"level": "0.x"}),
        json!({"address": "192.0.2.1"}),
        json!({"id": "42c3e46f-2477-44d7-a85b-d3b43f6b31fa"}),
        json!({"a": "not any more."}),
        json!({"a": "no longer.since then"}),
        json!({"a": "b", "c": null}),
        json!({"a": {}}),
        json!({"a": [""]}),
        json!({"a": 0}),
    ] {
        for payload in [
            json!({"roles": {"admin": denied, "reader": true}}),
            json!({"roles": [{"admin": true}], "denied": denied}),
            json!({"roles": {"Admin": true, "admins": true, "7": true}, "denied": denied}),
        ] {
            let found = verdict(roles(), &payload);
            assert_eq!(found, RuleVerdict::LacksClaim, "{payload}");
        }
    }
}

#[test]
fn words_of_a_text_count_where_the_rule_lists_the_claim() {
    use RuleVerdict::{Holds, LacksClaim};
    let whole = claim("roles", json!(["admin", "CN=Ops,DC=a"]));
    let mut by_words = whole.clone();
    by_words.claims[0].by_words = true;
    for (roles, of_whole, of_words) in [
        (json!("editor admin"), LacksClaim, Holds),
        (json!("admin"), Holds, Holds),
        (json!("administrator admins"), LacksClaim, LacksClaim),
        (json!("editor,admin"), LacksClaim, LacksClaim),
        (json!("editor\tadmin"), LacksClaim, LacksClaim),
        (json!(["editor admin"]), LacksClaim, LacksClaim),
        (json!({"editor admin": true}), LacksClaim, LacksClaim),
        (json!("CN=Ops,DC=a"), Holds, Holds),
        (json!("CN=admin,DC=a"), LacksClaim, LacksClaim),
        (json!(""), LacksClaim, LacksClaim),
    ] {
        let payload = json!({"roles": roles});
        assert_eq!(verdict(whole.clone(), &payload), of_whole, "{payload}");
        assert_eq!(verdict(by_words.clone(), &payload), of_words, "{payload}");
    }
    assert_eq!(
        by_words.to_string(),
        r#"roles = "admin" or "CN=Ops,DC=a" as a word"#
    );
}

#[test]
fn every_claim_of_a_rule_has_to_hold_and_the_scope_comes_first() {
    let both = Requirement {
        claims: claim("a", json!([1])).claims,
        ..scope(&["s"])
    };
    for (payload, expected) in [
        (json!({"scope": "s", "a": 1}), RuleVerdict::Holds),
        (json!({"scope": "s", "a": 2}), RuleVerdict::LacksClaim),
        (json!({"a": 1}), RuleVerdict::LacksScope),
        (json!({}), RuleVerdict::LacksScope),
    ] {
        assert_eq!(verdict(both.clone(), &payload), expected, "{payload}");
    }
    assert_eq!(both.to_string(), "scope s, and a = 1");
}

#[test]
fn an_explanation_has_the_claims_of_the_rule_alone() {
    let both = Requirement {
        scope: vec!["orders:read".to_owned()],
        ..claim("dept", json!(["a", 7]))
    };
    let rules = AccessRules::new(vec![rule(&[], &["/**"], both)], Unmatched::Token);
    assert_eq!(rules.rules()[0].name, "/**");
    assert_eq!(rules.unmatched(), Unmatched::Token);
    let both = json!({"sub": "1", "scp": ["x"], "dept": 7});
    for (payload, found) in [
        (json!({"sub": "1"}), "none of these claims"),
        (both, r#"scp = ["x"], dept = 7"#),
        (json!({"scope": "x"}), r#"scope = "x""#),
    ] {
        let payload = serde_json::from_value(payload).unwrap();
        let facts = rules.describe(0, &payload).unwrap();
        let needs = r#"needs scope orders:read, and dept = "a" or 7; found "#;
        assert!(facts.ends_with(&format!("{needs}{found}")), "{facts}");
    }
    assert_eq!(Requirement::default().to_string(), "a valid token");
}

type Field<'a> = (&'a str, &'a str);

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
