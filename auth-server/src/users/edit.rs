//! Edits of the users file that keep its comments and formatting.

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use super::toml_schema::{UserEntry, UsersDocument};
use super::users_file::{Users, UsersFileError};

/// Marks a file without users as complete, not truncated.
const NO_USERS: &str = "# no users\n";
const USERS: &str = "user";

#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    #[error("user {0:?}: this account exists already")]
    Taken(String),
    #[error("user {0:?}: no such account")]
    NotThere(String),
    #[error(transparent)]
    Invalid(#[from] UsersFileError),
    #[error("the file cannot be written as TOML: {0}")]
    Toml(#[from] toml::ser::Error),
    #[error("the file holds no list of users that can be edited")]
    NoList,
}

pub(crate) fn with_user(text: &str, entry: UserEntry) -> Result<String, EditError> {
    if position(text, &entry.account)?.is_some() {
        return Err(EditError::Taken(entry.account));
    }
    let mut new = table(entry)?;
    edited(text, |users| {
        if !users.is_empty() {
            new.decor_mut().set_prefix("\n");
        }
        users.push(new);
    })
}

/// Removes a user. The comment in front stays: it may be the heading of the file or of those below.
pub(crate) fn without_user(text: &str, account: &str) -> Result<String, EditError> {
    let index = known(text, account)?;
    let mut kept = String::new();
    let rest = edited(text, |users| {
        kept = comment_before(users.get(index));
        users.remove(index);
        if let Some(next) = users.get_mut(index) {
            let prefix = kept.split_off(0) + &comment_before(Some(next));
            next.decor_mut().set_prefix(prefix);
        }
    })?;
    keep_not_empty(rest + &kept)
}

/// Sets the password of a user to a PHC string.
pub(crate) fn with_password(text: &str, account: &str, phc: &str) -> Result<String, EditError> {
    with_field(text, account, "password", toml_edit::value(phc))
}

pub(crate) fn with_disabled(
    text: &str,
    account: &str,
    disabled: bool,
) -> Result<String, EditError> {
    with_field(text, account, "disabled", toml_edit::value(disabled))
}

/// Sets the secret of verification codes in base32, or removes it.
pub(crate) fn with_totp(
    text: &str,
    account: &str,
    secret: Option<&str>,
) -> Result<String, EditError> {
    match secret {
        Some(secret) => with_field(text, account, "totp", toml_edit::value(secret)),
        None => {
            let index = known(text, account)?;
            edited(text, |users| {
                if let Some(user) = users.get_mut(index) {
                    user.remove("totp");
                }
            })
        }
    }
}

fn with_field(text: &str, account: &str, key: &str, value: Item) -> Result<String, EditError> {
    let index = known(text, account)?;
    edited(text, |users| {
        if let Some(user) = users.get_mut(index) {
            set(user, key, value);
        }
    })
}

/// Sets a value and keeps the comment behind it.
fn set(user: &mut Table, key: &str, mut value: Item) {
    let former = user.get(key).and_then(Item::as_value);
    if let (Some(former), Some(new)) = (former, value.as_value_mut()) {
        *new.decor_mut() = former.decor().clone();
    }
    user.insert(key, value);
}

/// Applies `change` to the users, and verifies that a server accepts the result.
fn edited(text: &str, change: impl FnOnce(&mut ArrayOfTables)) -> Result<String, EditError> {
    let mut document: DocumentMut = text.parse().map_err(|_| EditError::NoList)?;
    let mut users = match document.remove(USERS) {
        None => ArrayOfTables::new(),
        Some(item) => item.into_array_of_tables().map_err(|_| EditError::NoList)?,
    };
    change(&mut users);
    document.insert(USERS, Item::ArrayOfTables(users));
    let text = document.to_string();
    Users::parse(&text)?;
    Ok(text)
}

fn keep_not_empty(text: String) -> Result<String, EditError> {
    let is_empty = UsersDocument::parse(&text)?.users.is_empty();
    Ok(if is_empty && !text.contains('#') {
        NO_USERS.to_owned()
    } else {
        text
    })
}

fn comment_before(user: Option<&Table>) -> String {
    user.and_then(|user| user.decor().prefix()?.as_str())
        .unwrap_or_default()
        .to_owned()
}

fn table(entry: UserEntry) -> Result<Table, EditError> {
    let one = UsersDocument { users: vec![entry] };
    let document: DocumentMut = toml::to_string(&one)?
        .parse()
        .map_err(|_| EditError::NoList)?;
    document
        .get(USERS)
        .and_then(|users| users.as_array_of_tables()?.get(0))
        .cloned()
        .ok_or(EditError::NoList)
}

fn known(text: &str, account: &str) -> Result<usize, EditError> {
    position(text, account)?.ok_or_else(|| EditError::NotThere(account.to_owned()))
}

fn position(text: &str, account: &str) -> Result<Option<usize>, EditError> {
    let users = UsersDocument::parse(text)?.users;
    Ok(users.iter().position(|user| user.account == account))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::password::tests::cheap;
    use super::super::users_file::tests::entry as table;
    use super::*;
    use crate::users::toml_schema::tests::entry;

    fn accounts(text: &str) -> Vec<String> {
        let users = UsersDocument::parse(text).unwrap().users;
        users.into_iter().map(|user| user.account).collect()
    }

    #[test]
    fn a_user_is_added_at_the_end_and_comments_stay() {
        let first = with_user("", entry("ada")).unwrap();
        assert!(
            first.starts_with("[[user]]\naccount = \"ada\"\n"),
            "{first}"
        );
        let text = format!("# ours\n{}", first.trim_end());
        let second = with_user(&text, entry("bob")).unwrap();
        assert!(second.starts_with(&text), "{second}");
        assert_eq!(accounts(&second), ["ada", "bob"]);
    }

    #[test]
    fn a_user_is_removed_and_the_comments_of_the_others_stay() {
        let (ada, bob, eve) = (table("ada", "p"), table("bob", "p"), table("eve", "p"));
        let text = format!("# ours\n{ada}\n# the second\n{bob}\n# the third\n{eve}# end\n");
        let expected = format!("# ours\n{ada}\n# the second\n\n# the third\n{eve}# end\n");
        assert_eq!(without_user(&text, "bob").unwrap(), expected);
        let none = ["ada", "bob", "eve"]
            .iter()
            .fold(text, |text, account| without_user(&text, account).unwrap());
        assert_eq!(accounts(&none), [""; 0]);
        assert!(none.contains("# the third"), "{none}");
    }

    #[test]
    fn one_field_changes_and_everything_around_it_stays() {
        let (ada, bob) = (table("ada", "p"), table("bob", "p"));
        let text = format!("# ours\n{ada}disabled = true # on leave\n\n{bob}# end\n");
        let enabled = with_disabled(&text, "ada", false).unwrap();
        assert_eq!(enabled, text.replace("disabled = true", "disabled = false"));

        let phc = cheap("another");
        let changed = with_password(&text, "bob", &phc).unwrap();
        let users = UsersDocument::parse(&changed).unwrap().users;
        assert_eq!(users[1].password, phc);
        assert!(
            changed.starts_with(&text[..text.len() - bob.len() - 6]),
            "{changed}"
        );
        assert!(changed.ends_with("# end\n"), "{changed}");

        let secret = super::super::totp::tests::SECRET;
        let with_secret = with_totp(&text, "ada", Some(secret)).unwrap();
        let users = UsersDocument::parse(&with_secret).unwrap().users;
        assert_eq!(users[0].totp.as_deref(), Some(secret));
        assert_eq!(with_totp(&with_secret, "ada", None).unwrap(), text);
        assert_eq!(with_totp(&text, "ada", None).unwrap(), text);
        assert!(with_totp(&text, "ada", Some("hush")).is_err());
        assert!(with_totp(&text, "eve", None).is_err());

        let anew = with_disabled(&bob, "bob", true).unwrap();
        assert!(UsersDocument::parse(&anew).unwrap().users[0].disabled);
        assert!(with_password(&text, "bob", "no hash").is_err());
        assert!(with_disabled(&text, "eve", true).is_err());
    }

    #[test]
    fn the_last_one_leaves_a_file_that_is_not_empty() {
        let none = without_user(&table("ada", "p"), "ada").unwrap();
        assert_eq!(none, NO_USERS);
        assert_eq!(accounts(&with_user(&none, entry("ada")).unwrap()), ["ada"]);
    }

    #[test]
    fn another_way_of_writing_users_is_understood_and_written_anew() {
        let inline = format!(
            "user = [{{ account = \"ada\", password = {:?}, id = \"1\" }}]",
            cheap("p")
        );
        let two = with_user(&inline, entry("bob")).unwrap();
        assert_eq!(accounts(&two), ["ada", "bob"]);
        assert_eq!(accounts(&without_user(&two, "ada").unwrap()), ["bob"]);
        assert_eq!(accounts(&without_user(&inline, "ada").unwrap()), [""; 0]);
    }

    #[test]
    fn a_table_header_within_a_string_does_not_mislead() {
        let tricky = format!(
            "{}nickName = \"\"\"\\\n[[user]]\\\n\"\"\"\n{}",
            table("ada", "p"),
            table("bob", "p")
        );
        assert_eq!(accounts(&without_user(&tricky, "bob").unwrap()), ["ada"]);
        assert_eq!(accounts(&without_user(&tricky, "ada").unwrap()), ["bob"]);
    }

    #[test]
    fn what_would_not_be_a_users_file_is_not_written() {
        let text = table("ada", "p");
        assert!(matches!(
            with_user(&text, entry("ada")),
            Err(EditError::Taken(_))
        ));
        assert!(matches!(
            without_user(&text, "bob"),
            Err(EditError::NotThere(_))
        ));
        let same_id = UserEntry {
            id: "id of ada".into(),
            ..entry("bob")
        };
        assert!(matches!(
            with_user(&text, same_id),
            Err(EditError::Invalid(_))
        ));
        assert!(matches!(
            with_user("broken", entry("bob")),
            Err(EditError::Invalid(_))
        ));
    }
}
