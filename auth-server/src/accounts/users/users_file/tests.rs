//! Files of users: accepted entries, and the error of each other one.

use postern_token::keys::signing_type::SigningType;

use super::super::password::tests::cheap;
use super::*;
use crate::config::MAX_AUTHORIZATION_BYTES;
use crate::keys::pair::tests::pair;
use crate::tokens::issuer::{IssuedTimes, TokenIdentity, TokenIssuer};
use postern_token::possession::Binding;

pub(crate) fn entry(account: &str, password: &str) -> String {
    let hash = cheap(password);
    format!("[[user]]\naccount = {account:?}\npassword = {hash:?}\nid = \"id of {account}\"\n")
}

#[test]
fn each_member_reaches_the_user() {
    let text = entry("ada", "p")
        + "nickName = \"Ada Lovelace\"\ntelephone = \"+44\"\navatar = \"a.png\"\n\
               userType = \"staff\"\ntenantId = \"t\"\ngrade = \"g\"\n";
    let user = Users::parse(&text).unwrap().present("ada").unwrap().user;
    let expected = User {
        id: "id of ada".into(),
        account: "ada".into(),
        nick_name: "Ada Lovelace".into(),
        extra_info: ExtraInfo {
            avatar: Some("a.png".into()),
            telephone: Some("+44".into()),
            user_type: Some("staff".into()),
            tenant_id: Some("t".into()),
            grade: Some("g".into()),
        },
        grant: Grant::default(),
    };
    assert_eq!(user, expected);
}

#[test]
fn scope_audience_roles_and_claims_are_the_user_s_grant() {
    let text = entry("ada", "p")
        + "audience = [\"orders\"]\nscope = \"orders:write orders:read\"\n\
               roles = [\"admin\", \"ops\"]\nclaims = { region = \"eu\", level = 7 }\n";
    let ada = Users::parse(&text).unwrap().present("ada").unwrap();
    let grant = serde_json::to_value(ada.user.grant).unwrap();
    let expected = serde_json::json!({
        "scope": "orders:read orders:write", "audience": ["orders"],
        "claims": {"region": "eu", "level": 7, "roles": ["admin", "ops"]}
    });
    assert_eq!(grant, expected);
    let table = entry("ada", "p") + "[user.claims]\nregion = \"eu\"\n";
    assert!(Users::parse(&table).is_ok());
    for (wrong, expected) in [
        (
            "claims = { sub = \"1\" }",
            "the claim sub is this server's own",
        ),
        (
            "claims = { at = 2026-01-01 }",
            "the claim at holds a control character, or a date",
        ),
        ("scope = \"\"", "a scope is a list"),
        ("audience = [\"a b\"]", "1 to 256 characters without"),
        ("roles = \"admin\"", "expected a list"),
        (
            "roles = [\"a\"]\nclaims = { roles = [\"b\"] }",
            "user \"ada\": claims: the claim roles stands there twice",
        ),
    ] {
        let text = format!("{}{wrong}\n", entry("ada", "p"));
        let line = Users::parse(&text).unwrap_err().to_string();
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn what_is_left_out_has_a_default_or_no_value() {
    let users = Users::parse(&entry("ada", "p")).unwrap();
    let user = users.present("ada").unwrap().user;
    let member = ExtraInfo {
        user_type: Some("member".into()),
        ..ExtraInfo::default()
    };
    assert_eq!((&*user.nick_name, user.extra_info), ("ada", member));
    assert_eq!(Users::parse("# nobody\n").unwrap().len(), 0);
}

#[test]
fn what_is_wrong_is_reported_without_quoting_a_password() {
    let ada = entry("ada", "p");
    for (text, expected) in [
        ("user = 1", "line 1: "),
        ("[[user]\n", "line 1: "),
        (
            &format!("{ada}pasword = \"x\"\n"),
            "line 5: unknown key `pasword`",
        ),
        (
            &format!("{ada}totp = \"YSBzYWx0\"\n"),
            "line 5: unknown key `totp`",
        ),
        ("[[users]]\n", "line 1: unknown key `users`"),
        (
            "[[user]]\naccount = \"a\"\n",
            "a key is missing: `password`",
        ),
        (&format!("{ada}disabled = 1\n"), "line 5: "),
        (
            &format!("{ada}{ada}"),
            r#"user "ada": another user has this id"#,
        ),
        (
            &format!("{ada}{}", ada.replace("id of", "other")),
            r#"user "ada": this account is listed twice"#,
        ),
        (
            &ada.replace("\"ada\"", "\"\""),
            "account and id have 1 to 128 characters",
        ),
        (
            &ada.replace("\"ada\"", "\" ada\""),
            "account and id have 1 to 128 characters",
        ),
        (
            &ada.replace("\"ada\"", "\"a\u{308}da\""),
            "account and id have 1 to 128 characters",
        ),
        (
            &ada.replace("\"id of ada\"", "\"\""),
            "account and id have 1 to 128 characters",
        ),
        (
            &ada.replace("argon2id", "argon2i"),
            r#"user "ada": password: not an argon2id"#,
        ),
        (&ada.replace("m=8,", "m=8388608,"), "out of bounds"),
        (
            &format!("{ada}nickName = \"n\\u001b]0;x\"\n"),
            r#"user "ada": nickName holds a control character"#,
        ),
        (
            &format!("{ada}userType = \"Application\""),
            r#"user "ada": userType "application" is for applications alone"#,
        ),
        (
            &format!("{ada}grade = \"a\\nroot\""),
            r#"user "ada": grade holds a control character"#,
        ),
    ] {
        let line = Users::parse(text).unwrap_err().to_string();
        assert!(line.contains(expected), "{line}");
        assert!(
            !line.contains("$argon2i$") && !line.contains("YSBzYWx0"),
            "{line}"
        );
    }
}

#[test]
fn accounts_that_differ_in_letter_case_alone_are_a_warning() {
    let warning = |accounts: &[&str]| {
        let entries = accounts.iter().map(|account| entry(account, "x"));
        let text: String = entries.collect();
        Users::parse(&text).unwrap().letter_case_warning()
    };
    assert_eq!(warning(&["ada", "bob"]), None);
    for (one, other) in [("ADA", "ada"), ("ÉVE", "éve")] {
        let warning = warning(&[other, "bob", one]).unwrap();
        let names = format!("{one:?} and {other:?}");
        assert!(warning.starts_with(&names), "{warning}");
    }
}

#[test]
fn a_user_that_gets_a_token_can_use_it() {
    let with_avatar = |avatar: &str| {
        let text = format!("{}avatar = {avatar:?}\n", entry("ada", "p"));
        let users = Users::parse(&text)?;
        Ok::<_, String>(users.present("ada").unwrap().user)
    };
    let pair = pair(SigningType::Rsa);
    for piece in ["x", "\"", "\\", "😀"] {
        let lengths: Vec<_> = (0..=MAX_CLAIM_BYTES).collect();
        let fits = |n: &usize| with_avatar(&piece.repeat(*n)).is_ok();
        let too_long = lengths.partition_point(fits);
        let user = with_avatar(&piece.repeat(too_long - 1)).unwrap();
        let issuer = TokenIssuer {
            audience: Vec::new(),
            issuer: "x".repeat(MAX_CHARACTERS),
            lifetime: u32::MAX,
        };
        let times = IssuedTimes {
            issued_at: i64::MAX / 2,
            expires: i64::MAX,
        };
        let ids = TokenIdentity {
            token_id: "x".repeat(MAX_CHARACTERS),
            session: None,
            binding: Some(Binding {
                key: Some([0; 32]),
                certificate: Some([0; 32]),
            }),
        };
        let token = issuer.issue(&pair, &user, times, ids).unwrap();
        let field = "Bearer ".len() + token.len();
        assert!(field <= MAX_AUTHORIZATION_BYTES, "{piece:?}: {field}");
    }
    let line = with_avatar(&"x".repeat(9000)).unwrap_err().to_string();
    assert!(line.contains("at most 4096 fit"), "{line}");
}

#[test]
fn the_stand_in_costs_what_most_passwords_of_the_file_cost() {
    let common = HashedPassword::parse(&cheap("p")).unwrap();
    let rare = HashedPassword::default();
    let stand_in = most_common([&rare, &common, &common].into_iter());
    assert_eq!(stand_in.cost(), common.cost());
    assert_eq!(most_common([].into_iter()).cost(), rare.cost());
}
