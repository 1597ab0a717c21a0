//! Edits of the users file. It is written anew: of its comments those in front of the first user stay.

use super::toml_schema::{UserEntry, UsersDocument};
use super::users_file::{Users, UsersFileError};

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
}

pub(crate) fn with_user(text: &str, entry: UserEntry) -> Result<String, EditError> {
    edited(text, |users| {
        if users.iter().any(|user| user.account == entry.account) {
            return Err(EditError::Taken(entry.account));
        }
        users.push(entry);
        Ok(())
    })
}

pub(crate) fn without_user(text: &str, account: &str) -> Result<String, EditError> {
    edited(text, |users| {
        let index = users.iter().position(|user| user.account == account);
        users.remove(index.ok_or_else(|| EditError::NotThere(account.to_owned()))?);
        Ok(())
    })
}

pub(crate) fn with_change(
    text: &str,
    account: &str,
    change: impl FnOnce(&mut UserEntry),
) -> Result<String, EditError> {
    edited(text, |users| {
        let user = users.iter_mut().find(|user| user.account == account);
        change(user.ok_or_else(|| EditError::NotThere(account.to_owned()))?);
        Ok(())
    })
}

/// Applies `change` to the users, and verifies that a server accepts the result.
fn edited(
    text: &str,
    change: impl FnOnce(&mut Vec<UserEntry>) -> Result<(), EditError>,
) -> Result<String, EditError> {
    let mut document = UsersDocument::parse(text)?;
    change(&mut document.users)?;
    let is_heading = |line: &&str| line.starts_with('#') || line.trim().is_empty();
    let heading = text.split_inclusive('\n').take_while(is_heading);
    let text = heading.collect::<String>() + &toml::to_string(&document)?;
    Users::parse(&text)?;
    Ok(text)
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
    fn users_come_and_go_under_the_heading() {
        let text = format!("# ours\n\n{}", with_user("", entry("ada")).unwrap());
        let two = with_user(&text, entry("bob")).unwrap();
        assert!(
            two.starts_with("# ours\n\n[[user]]\naccount = \"ada\"\n"),
            "{two}"
        );
        assert_eq!(accounts(&two), ["ada", "bob"]);
        assert_eq!(without_user(&two, "bob").unwrap(), text);
        let none = without_user(&with_user("", entry("ada")).unwrap(), "ada").unwrap();
        assert!(
            !none.is_empty(),
            "an empty file is taken for a truncated one"
        );
        assert_eq!(accounts(&with_user(&none, entry("ada")).unwrap()), ["ada"]);
    }

    #[test]
    fn one_user_changes_and_the_others_stay() {
        let text = with_user("", entry("ada")).unwrap();
        let text = with_user(&text, entry("bob")).unwrap();
        let changed = with_change(&text, "bob", |user| user.disabled = true).unwrap();
        let users = UsersDocument::parse(&changed).unwrap().users;
        assert_eq!(users[0], entry("ada"));
        let disabled = UserEntry {
            disabled: true,
            ..entry("bob")
        };
        assert_eq!(users[1], disabled);
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
    }

    #[test]
    fn what_would_not_be_a_users_file_is_not_written() {
        let text = table("ada", "p");
        let taken = with_user(&text, entry("ada"));
        assert!(matches!(taken, Err(EditError::Taken(_))));
        let of_no_one = [
            without_user(&text, "bob"),
            with_change(&text, "bob", |_| {}),
        ];
        assert!(
            of_no_one
                .iter()
                .all(|it| matches!(it, Err(EditError::NotThere(_))))
        );
        let same_id = UserEntry {
            id: "id of ada".into(),
            ..entry("bob")
        };
        for invalid in [
            with_user(&text, same_id),
            with_user("broken", entry("bob")),
            with_change(&text, "ada", |user| user.password = "no hash".to_owned()),
            with_change(&text, "ada", |user| user.totp = Some("hush".to_owned())),
        ] {
            assert!(matches!(invalid, Err(EditError::Invalid(_))));
        }
    }
}
