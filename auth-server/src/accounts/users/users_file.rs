//! Parses and validates the users file as a whole.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use argon2::Params;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use postern_http::folding::composed;
use postern_process::files::secret_file::{self, SecretFileError};
use postern_token::claims::ExtraInfo;
use postern_token::digest::sha256;
use zeroize::Zeroizing;

use super::password::{Cost, HashedPassword};
use super::toml_schema::{UserEntry, UsersDocument};
use super::{APPLICATION, MEMBER, PresentUser, User};
use crate::accounts::grants::Grant;

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
    /// The password that is verified for an unknown account.
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
            if !ids.insert(entry.id.clone()) {
                return Err(format!("user {account:?}: another user has this id"));
            }
            let known =
                KnownUser::try_from(entry).map_err(|cause| format!("user {account:?}: {cause}"))?;
            if by_account.insert(account.clone(), known).is_some() {
                return Err(format!("user {account:?}: this account is listed twice"));
            }
        }
        // Made at each load, so that a login of an unknown account costs as much as one of this file's.
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
        let common = self.stand_in.cost();
        let uncommon = self
            .by_account
            .values()
            .filter(|known| known.password.cost() != common)
            .count();
        if uncommon == 0 {
            return None;
        }
        let Cost {
            memory,
            passes,
            lanes,
        } = common;
        Some(format!(
            "{uncommon} of {} passwords have other argon2id parameters than most (m={memory},t={passes},p={lanes}): \
             the time of a failed login shows that these accounts exist; user set-password uses those of most",
            self.len()
        ))
    }

    /// Returns a warning about accounts that people take for one: letter case counts.
    pub(crate) fn letter_case_warning(&self) -> Option<String> {
        let mut accounts: Vec<_> = self.by_account.keys().collect();
        // The map has no order, and the warning should be the same at each start.
        accounts.sort_unstable();
        let mut seen = HashMap::new();
        for account in accounts {
            if let Some(other) = seen.insert(account.to_lowercase(), account) {
                return Some(format!(
                    "{other:?} and {account:?} differ in letter case alone and are two users: services that ignore \
                     it take them for one"
                ));
            }
        }
        None
    }

    pub(super) fn accounts(&self) -> impl Iterator<Item = &String> {
        self.by_account.keys()
    }

    pub(super) fn known(&self, account: &str) -> Option<&KnownUser> {
        self.by_account.get(account)
    }

    /// Returns the user of an account that is not disabled.
    pub(crate) fn present(&self, account: &str) -> Option<PresentUser> {
        match self.by_account.get(account)? {
            KnownUser { disabled: true, .. } => None,
            known => Some(known.present.clone()),
        }
    }

    /// Verifies an account and a password. An unknown account and a disabled one cost the same work
    /// as a wrong password.
    pub(super) fn authenticate(&self, account: &str, password: &str) -> Option<PresentUser> {
        // The hash is computed in every case, before it is decided if the user is present.
        let stored = match self.by_account.get(account) {
            Some(known) => &known.password,
            None => &self.stand_in,
        };
        if !stored.matches(password) {
            return None;
        }
        self.present(account)
    }
}

impl TryFrom<UserEntry> for KnownUser {
    type Error = String;

    fn try_from(entry: UserEntry) -> Result<Self, String> {
        if !is_name(&entry.account) || !is_name(&entry.id) {
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
        // Computed before the entry is taken apart.
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
    URL_SAFE_NO_PAD.encode(sha256(text))
}

/// Returns a digest of account and password hash, which the salt of the hash makes unguessable.
fn credentials(entry: &UserEntry) -> String {
    // Neither part holds a line end, so that no two pairs have the same text.
    digest_of(&format!("{}\n{}\n", entry.account, entry.password))
}

/// Returns the name of a member with a control character, which could forge neighbours in lists, logs
/// and header fields.
fn with_control_character(entry: &UserEntry) -> Option<String> {
    let Ok(members) = serde_json::to_value(entry) else {
        return Some("user".to_owned());
    };
    for (name, value) in members.as_object()? {
        if let Some(text) = value.as_str()
            && text.contains(char::is_control)
        {
            return Some(name.clone());
        }
    }
    None
}

/// Returns the size of the claims; the id is both `sub` and `userId`.
fn claim_bytes(user: &User) -> usize {
    let claims = (
        (&user.id, &user.id),
        (&user.account, &user.nick_name),
        &user.extra_info,
        &user.grant,
    );
    match serde_json::to_vec(&claims) {
        Ok(json) => json.len(),
        Err(_) => usize::MAX,
    }
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
    let most = costs
        .into_values()
        .max_by_key(|(count, password)| (*count, password.cost()));
    match most {
        Some((_, password)) => password.unmatchable(),
        None => HashedPassword::default(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests;
