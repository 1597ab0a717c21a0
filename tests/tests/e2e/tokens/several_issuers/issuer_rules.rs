//! Rules for the tokens of one issuer: what a claim means to one, any other may say of anyone.

use tests::actors::sidecar::NEVER;

use super::published::check;
use super::user_prefixes::issuers;

#[test]
fn a_rule_of_one_issuer_is_satisfied_by_its_tokens_alone() {
    let issuers = issuers();
    let rules = "[[rule]]\npaths = ['/admin/**']\nissuer = ['users']\n\
                 claims = { '/realm_access/roles' = ['buyer', 'admin'] }\n\
                 [[rule]]\nname = 'own'\npaths = ['/own/**']\nissuer = ['users']\n\
                 [[rule]]\npaths = ['/all/**']\nissuer = ['partner', 'users']\n";
    let config = rules.to_owned() + &issuers.tables();
    let plan = issuers.plan_with(&config).flags(NEVER);
    let sidecar = plan.with_all_keys();
    for (path, of_users, of_partner) in [
        ("/admin/x", "200", "403 claim_not_allowed"),
        ("/own/x", "200", "403 claim_not_allowed"),
        ("/all/x", "200", "200"),
        ("/x", "200", "200"),
    ] {
        for (name, expected) in [("users", of_users), ("partner", of_partner)] {
            let bearer = sidecar.bearing(&issuers.of(name).own());
            // The second time from the token cache.
            for _ in 0..2 {
                assert_eq!(bearer.verdict(path), expected, "{name} {path}");
            }
        }
    }
    let end = check(&config, &["--strict"]);
    assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
}

#[test]
fn check_warns_of_a_rule_that_any_issuer_satisfies() {
    let issuers = issuers();
    let (one, both) = (issuers.of("users").table(), issuers.tables());
    for (tables, members, is_warned) in [
        (&both, "scope = ['a']", true),
        (&both, "claims = { tenant = [7] }", true),
        (&both, "scope = ['a']\nissuer = ['users']", false),
        (&both, "claims = { iss = ['https://users.example'] }", false),
        (&both, "methods = ['GET']", false),
        (&one, "scope = ['a']", false),
    ] {
        let config = format!("[[rule]]\npaths = ['/a']\n{members}\n{tables}");
        let end = check(&config, &[]);
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        let warning = "# warning: [[rule]] rule-1: has no `issuer`";
        let found = end.stdout.contains(warning);
        assert_eq!(found, is_warned, "{members}: {}", end.stdout);
    }
}
