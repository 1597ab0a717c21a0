//! Changes to the file of users that keep what people wrote around the entries. Where that cannot be
//! done (users as one inline array, say) the file is written anew, without its comments.

use super::document::{UserEntry, UsersDocument};
use super::users_file::{InvalidUsersFile, Users};

/// What keeps a file without users from looking like one that was cut off.
const NOBODY: &str = "# no users\n";
const HEADER: &str = "[[user]]";

#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    #[error("user {0:?}: this account is there already")]
    Taken(String),
    #[error("user {0:?}: no such account")]
    NotThere(String),
    #[error(transparent)]
    Invalid(#[from] InvalidUsersFile),
    #[error("the file cannot be written as TOML: {0}")]
    Toml(#[from] toml::ser::Error),
}

/// The file with one more user.
pub(crate) fn with_user(text: &str, entry: UserEntry) -> Result<String, EditError> {
    let mut document = UsersDocument::parse(text)?;
    if document
        .users
        .iter()
        .any(|user| user.account == entry.account)
    {
        return Err(EditError::Taken(entry.account));
    }
    let one = UsersDocument {
        users: vec![entry.clone()],
    };
    let separator = if text.trim().is_empty() { "" } else { "\n" };
    let appended = format!(
        "{}{separator}{}",
        on_its_own_line(text),
        toml::to_string(&one)?
    );
    document.users.push(entry);
    checked(appended, &document)
}

/// The file without one of its users.
pub(crate) fn without_user(text: &str, account: &str) -> Result<String, EditError> {
    let mut document = UsersDocument::parse(text)?;
    let Some(index) = document
        .users
        .iter()
        .position(|user| user.account == account)
    else {
        return Err(EditError::NotThere(account.to_owned()));
    };
    document.users.remove(index);
    checked(without_table(text, index), &document)
}

/// The edited text where it says what it should, and otherwise the document written anew.
fn checked(edited: String, document: &UsersDocument) -> Result<String, EditError> {
    let mut text = match UsersDocument::parse(&edited) {
        Ok(parsed) if parsed == *document => edited,
        _ => toml::to_string(document)?,
    };
    if text.trim().is_empty() || document.users.is_empty() && !text.contains('#') {
        text = NOBODY.to_owned();
    }
    // Two users of one id, a hash that is none: nothing is written that a server would refuse.
    Users::parse(&text)?;
    Ok(text)
}

fn on_its_own_line(text: &str) -> String {
    let line_break = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{text}{line_break}")
}

/// Cuts out one table, but not the comment in front of the next one.
fn without_table(text: &str, index: usize) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_header = |line: &&str| line.trim_start().starts_with(HEADER);
    let mut headers = (0..lines.len()).filter(|line| lines.get(*line).is_some_and(is_header));
    let Some(start) = headers.nth(index) else {
        return text.to_owned();
    };
    let end = headers.next().unwrap_or(lines.len());
    let says_something = |line: &usize| {
        let line = lines.get(*line).map_or("", |line| line.trim());
        !line.is_empty() && !line.starts_with('#')
    };
    let last = (start..end).rev().find(says_something).unwrap_or(start);
    let (before, rest) = lines.split_at(start);
    let after = rest.get(last + 1 - start..).unwrap_or_default();
    [before, after].concat().concat()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::password::tests::cheap;
    use super::super::users_file::tests::entry as table;
    use super::*;

    fn entry(account: &str) -> UserEntry {
        UserEntry {
            account: account.into(),
            password: cheap("p"),
            id: format!("id of {account}"),
            nick_name: Some("N \"quoted\"".into()),
            ..UserEntry::default()
        }
    }

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
    fn the_last_one_leaves_a_file_that_is_not_empty() {
        let none = without_user(&table("ada", "p"), "ada").unwrap();
        assert_eq!(none, NOBODY);
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
            "{}nickName = \"\"\"\n[[user]]\n\"\"\"\n{}",
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
