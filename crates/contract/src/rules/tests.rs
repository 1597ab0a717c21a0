//! Rules by method, path, scope and claim.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod requests;

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
