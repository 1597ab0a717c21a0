//! Parses and validates the users file as a whole.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use argon2::Params;
use aws_lc_rs::digest::{Context, SHA256, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use postern_http::folding::composed;
use postern_process::files::secret_file::{self, SecretFileError};
use postern_token::claims::ExtraInfo;
use zeroize::Zeroizing;

use super::password::HashedPassword;
use super::toml_schema::{UserEntry, UsersDocument};
use super::{APPLICATION, MEMBER, PresentUser, User};
use crate::grants::Grant;

/// Max length of the file; ten thousand users take 2 MiB.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Max length of a name: longer ones would only fill tokens and logs.
const MAX_CHARACTERS: usize = 128;

/// Bounds the claims of one user as JSON. In base64, with the other claims and the longest
/// signature, a token stays below [`MAX_AUTHORIZATION_BYTES`], so that this server accepts its own
/// tokens.
///
/// [`MAX_AUTHORIZATION_BYTES`]: crate::config::MAX_AUTHORIZATION_BYTES
const MAX_CLAIM_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct Users {
    /// Digest of the text: times and sizes of files miss changes, and reading is cheap.
    digest: String,
    by_account: HashMap<String, KnownUser>,
    ids: HashSet<String>,
    /// Verified in place of an unknown account.
    stand_in: HashedPassword,
}

/// Compares the texts.
impl PartialEq for Users {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct KnownUser {
    password: HashedPassword,
    /// The user, unless disabled.
    present: PresentUser,
    disabled: bool,
}

/// Reads the text of the file.
///
/// # Errors
/// For a file that others may read or change, or that cannot be read.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<String>, SecretFileError> {
    secret_file::read_up_to(path, MAX_BYTES)
}

impl Users {
    /// Parses the file; the error holds no password, hashed or not.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let users = UsersDocument::parse(text)?.users;
        let mut by_account = HashMap::with_capacity(users.len());
        let mut ids = HashSet::new();
        for entry in users {
            let account = entry.account.clone();
            let known = match ids.insert(entry.id.clone()) {
                true => KnownUser::try_from(entry),
                false => Err("another user has this id".to_owned()),
            };
            let known = known.map_err(|cause| format!("user {account:?}: {cause}"))?;
            if by_account.insert(account.clone(), known).is_some() {
                return Err(format!("user {account:?}: this account is listed twice"));
            }
        }
        // Made at each load, so that a login of an unknown account has the cost of the present
        // file.
        let stand_in = most_common(by_account.values().map(|known| &known.password));
        Ok(Self {
            digest: digest_of(text),
            by_account,
            ids,
            stand_in,
        })
    }

    /// Returns true for the text that was parsed.
    pub(super) fn are_of(&self, text: &str) -> bool {
        self.digest == digest_of(text)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_account.len()
    }

    pub(crate) fn knows(&self, account: &str) -> bool {
        self.by_account.contains_key(account)
    }

    /// Returns true for an account or an id.
    pub(crate) fn is_user(&self, name: &str) -> bool {
        self.by_account.contains_key(name) || self.ids.contains(name)
    }

    pub(crate) fn common_params(&self) -> &Params {
        self.stand_in.params()
    }

    /// Returns a warning about passwords whose check takes another time than most, which reveals that
    /// the accounts exist.
    pub(crate) fn cost_warning(&self) -> Option<String> {
        let common @ (m, t, p) = self.stand_in.cost();
        let costs = self.by_account.values().map(|known| known.password.cost());
        let uncommon = costs.filter(|cost| *cost != common).count();
        (uncommon > 0).then(|| {
            format!(
                "{uncommon} of {} passwords have other argon2id parameters than most (m={m},t={t},p={p}): the \
                 time of a failed login shows that these accounts exist; user set-password uses those of most",
                self.len()
            )
        })
    }

    /// Returns a warning about accounts that people take for one: letter case counts.
    pub(crate) fn letter_case_warning(&self) -> Option<String> {
        let mut accounts: Vec<_> = self.by_account.keys().collect();
        // The map has no order, and the warning should be the same at each start.
        accounts.sort_unstable();
        let mut seen = HashMap::new();
        accounts.into_iter().find_map(|account| {
            let other = seen.insert(account.to_lowercase(), account)?;
            Some(format!(
                "{other:?} and {account:?} differ in letter case alone and are two users: services that ignore \
                 it take them for one"
            ))
        })
    }

    pub(super) fn accounts(&self) -> impl Iterator<Item = &String> {
        self.by_account.keys()
    }

    pub(super) fn known(&self, account: &str) -> Option<&KnownUser> {
        self.by_account.get(account)
    }

    /// Returns the user of an account that is not disabled.
    pub(crate) fn present(&self, account: &str) -> Option<PresentUser> {
        let known = self.by_account.get(account)?;
        (!known.disabled).then(|| known.present.clone())
    }

    /// Verifies an account and a password. An unknown account and a disabled one cost the same work
    /// as a wrong password.
    pub(super) fn authenticate(&self, account: &str, password: &str) -> Option<PresentUser> {
        let known = self.by_account.get(account);
        // The hash is computed in every case; whether the user is present is decided behind it.
        let stored = known.map_or(&self.stand_in, |known| &known.password);
        match stored.matches(password) {
            true => self.present(account),
            false => None,
        }
    }
}

impl TryFrom<UserEntry> for KnownUser {
    type Error = String;

    fn try_from(entry: UserEntry) -> Result<Self, String> {
        if ![&entry.account, &entry.id]
            .into_iter()
            .all(|name| is_name(name))
        {
            return Err(format!(
                "account and id have 1 to {MAX_CHARACTERS} characters in NFC, no control character and no blank at \
                 an end"
            ));
        }
        if let Some(name) = with_control_character(&entry) {
            return Err(format!("{name} holds a control character"));
        }
        let user_type = entry.user_type.as_deref().unwrap_or_default();
        if user_type.eq_ignore_ascii_case(APPLICATION) {
            return Err(format!(
                "userType {APPLICATION:?} is for applications alone: services would take the user for one"
            ));
        }
        // Before the entry is taken apart.
        let credentials = credentials(&entry);
        let claims = entry.claims.with_roles(entry.roles);
        let user = User {
            id: entry.id,
            nick_name: entry.nick_name.unwrap_or_else(|| entry.account.clone()),
            account: entry.account,
            extra_info: ExtraInfo {
                avatar: entry.avatar,
                telephone: entry.telephone,
                user_type: Some(entry.user_type.unwrap_or_else(|| MEMBER.to_owned())),
                tenant_id: entry.tenant_id,
                grade: entry.grade,
            },
            grant: Grant {
                scope: entry.scope.unwrap_or_default(),
                audience: entry.audience,
                claims: claims.map_err(|why| format!("claims: {why}"))?,
                ..Grant::default()
            },
        };
        let known = Self {
            password: HashedPassword::parse(&entry.password)
                .map_err(|why| format!("password: {why}"))?,
            present: PresentUser { credentials, user },
            disabled: entry.disabled,
        };
        // At the load, not at a login: a file with such a user leaves the former users in use.
        match claim_bytes(&known.present.user) {
            ..=MAX_CLAIM_BYTES => Ok(known),
            too_many => Err(format!(
                "the claims of this user are {too_many} bytes of JSON; at most {MAX_CLAIM_BYTES} fit"
            )),
        }
    }
}

pub(super) fn digest_of(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

/// Digests what the user logs in with; the salt of the password makes it unguessable.
fn credentials(entry: &UserEntry) -> String {
    let mut digest = Context::new(&SHA256);
    for part in [&entry.account, &entry.password] {
        digest.update(part.as_bytes());
        // Neither part holds a line end, so that no two pairs have the same text.
        digest.update(b"\n");
    }
    URL_SAFE_NO_PAD.encode(digest.finish())
}

/// Returns the name of a member with a control character, which could forge neighbours in lists, logs
/// and header fields.
fn with_control_character(entry: &UserEntry) -> Option<String> {
    let Ok(members) = serde_json::to_value(entry) else {
        return Some("user".to_owned());
    };
    let has_one = |text: &str| text.contains(char::is_control);
    let mut members = members.as_object()?.iter();
    let (name, _) = members.find(|(_, value)| value.as_str().is_some_and(has_one))?;
    Some(name.clone())
}

/// Returns the size of the claims; the id is both `sub` and `userId`.
fn claim_bytes(user: &User) -> usize {
    let claims = (
        (&user.id, &user.id),
        (&user.account, &user.nick_name),
        &user.extra_info,
        &user.grant,
    );
    serde_json::to_vec(&claims).map_or(usize::MAX, |json| json.len())
}

fn is_name(text: &str) -> bool {
    (1..=MAX_CHARACTERS).contains(&text.chars().count())
        && !text.chars().any(char::is_control)
        && text.trim() == text
        && composed(text) == text
}

/// Returns a stand-in that costs as much as most passwords, so that the time reveals least.
fn most_common<'p>(passwords: impl Iterator<Item = &'p HashedPassword>) -> HashedPassword {
    let mut costs: HashMap<_, (usize, &HashedPassword)> = HashMap::new();
    for password in passwords {
        // Counted by cost alone: the salts differ.
        costs.entry(password.cost()).or_insert((0, password)).0 += 1;
    }
    costs
        .into_values()
        .max_by_key(|(count, password)| (*count, password.cost()))
        .map_or_else(HashedPassword::default, |(_, password)| {
            password.unmatchable()
        })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use postern_token::keys::signing_type::SigningType;

    use super::super::password::tests::cheap;
    use super::*;
    use crate::config::MAX_AUTHORIZATION_BYTES;
    use crate::keys::pair::tests::pair;
    use crate::tokens::issuer::{TokenIdentity, TokenIssuer, Validity};
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
    fn only_an_enabled_user_with_the_right_password_is_let_in() {
        let text = entry("ada", "a") + &entry("eve", "e") + "disabled = true\n";
        let users = Users::parse(&text).unwrap();
        for (account, password, expected) in [
            ("ada", "a", true),
            ("ada", "e", false),
            ("Ada", "a", false),
            ("eve", "e", false),
            ("bob", "a", false),
            ("", "", false),
        ] {
            let outcome = users.authenticate(account, password);
            assert_eq!(outcome.is_some(), expected, "{account} {password}");
        }
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
    fn passwords_that_cost_more_or_less_than_most_are_counted() {
        let (ada, bob, eve) = (entry("ada", "a"), entry("bob", "b"), entry("eve", "e"));
        let even = Users::parse(&format!("{ada}{bob}")).unwrap();
        assert_eq!(even.cost_warning(), None);
        let costly = eve.replace("m=8,t=1", "m=16,t=2");
        let uneven = Users::parse(&format!("{ada}{costly}{bob}")).unwrap();
        let warning = uneven.cost_warning().unwrap();
        assert!(warning.starts_with("1 of 3 passwords"), "{warning}");
        assert!(warning.contains("(m=8,t=1,p=1)"), "{warning}");
        assert_eq!(uneven.common_params().m_cost(), 8);
        let empty = Users::parse("# nobody\n").unwrap();
        assert_eq!(empty.common_params(), &Params::default());
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
            let validity = Validity {
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
            let token = issuer.issue(&pair, &user, validity, ids).unwrap();
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
}
