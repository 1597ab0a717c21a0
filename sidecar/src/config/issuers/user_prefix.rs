//! The prefixes that tell the users of several issuers apart: two issuers may both have a user 1.

use std::fmt::Display;

use runtime::process::exit::ExitError;

use super::rejected;
use crate::auth::issuers::{UserNames, begins_with};
use crate::cli::issuer_table::IssuerTables;

/// Long enough for any name of an issuer, short enough for each user header.
const MAX_BYTES: usize = 64;
/// The beginning of all names in a Kubernetes cluster.
const OF_CLUSTER: &str = "system:";

/// The prefix of the users of one issuer.
#[derive(Debug, Clone, Copy)]
pub(super) struct UserPrefix<'a> {
    /// The name of the issuer.
    pub(super) issuer: &'a str,
    /// `None` where its table says none.
    pub(super) given: Option<&'a str>,
    /// True if every name begins with `system:`.
    pub(super) are_of_cluster: bool,
}

impl<'a> UserPrefix<'a> {
    /// Returns the prefix of the auth server's users, who have the empty one without a table.
    pub(super) fn of_auth_server(tables: &'a IssuerTables) -> Self {
        Self {
            issuer: tables.own_name(),
            given: match tables.own() {
                Some(own) => own.user_prefix.as_deref(),
                None => Some(""),
            },
            are_of_cluster: false,
        }
    }

    fn is_missing(&self) -> bool {
        self.given.is_none() && !self.are_of_cluster
    }

    /// Returns the beginning of the names of these users.
    fn beginning(&self) -> &'a str {
        match self.given {
            None if self.are_of_cluster => OF_CLUSTER,
            given => given.unwrap_or_default(),
        }
    }

    fn check(&self) -> Result<(), ExitError> {
        let prefix = self.given.unwrap_or_default();
        if prefix.len() <= MAX_BYTES && prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(());
        }
        Err(self.rejected(format!(
            "expected up to {MAX_BYTES} visible ASCII characters"
        )))
    }

    fn rejected(&self, why: impl Display) -> ExitError {
        let prefix = self.beginning().escape_debug();
        rejected(self.issuer, format!("user-prefix '{prefix}': {why}"))
    }
}

/// Returns the names of the users of each issuer.
///
/// # Errors
/// [`ExitError::Config`] for prefixes that are missing, or of which one begins another.
pub(super) fn names(all: &[UserPrefix<'_>]) -> Result<Vec<UserNames>, ExitError> {
    if all.len() > 1 && all.iter().any(UserPrefix::is_missing) {
        return Err(missing(all));
    }
    let mut names = Vec::new();
    for (position, one) in all.iter().enumerate() {
        one.check()?;
        let others = || {
            all.iter()
                .enumerate()
                .filter(|(other, _)| *other != position)
        };
        if let Some((_, other)) = others().find(|(_, other)| overlap(one, other)) {
            let why = format!("begins the prefix of {}, or is the same", other.issuer);
            return Err(one.rejected(why));
        }
        let of_others = others().map(|(_, other)| other.beginning().to_owned());
        names.push(UserNames {
            prefix: one.given.unwrap_or_default().to_owned(),
            of_others: of_others
                .filter(|beginning| !beginning.is_empty())
                .collect(),
        });
    }
    Ok(names)
}

/// Returns true if a name could belong to both; only the empty prefix may begin another.
fn overlap(one: &UserPrefix<'_>, other: &UserPrefix<'_>) -> bool {
    let (one, other) = (one.beginning(), other.beginning());
    one.is_empty() == other.is_empty() && begins_with(other, one)
}

/// Names the missing lines: the empty prefix keeps the users of the first issuer who they are.
fn missing(all: &[UserPrefix<'_>]) -> ExitError {
    let is_taken = all.iter().any(|one| one.given == Some(""));
    let first = all.iter().position(|one| !one.are_of_cluster);
    let lines = all.iter().enumerate().filter(|(_, one)| one.is_missing());
    let lines = lines.map(|(position, one)| {
        let prefix = match Some(position) == first && !is_taken {
            true => String::new(),
            false => proposed(one.issuer, all),
        };
        format!("`user-prefix = \"{prefix}\"` to {}", one.issuer)
    });
    let lines: Vec<_> = lines.collect();
    ExitError::Config(format!(
        "[[issuer]]: several issuers may have users of the same id, so each table needs a `user-prefix`, which is put \
         before id and account (a changed one makes new users for the service); add {}",
        lines.join(", ")
    ))
}

/// Returns the name with a colon, and with a dot in front where another prefix begins so.
fn proposed(issuer: &str, all: &[UserPrefix<'_>]) -> String {
    let prefix = format!("{issuer}:");
    let others = all.iter().map(UserPrefix::beginning);
    let mut others = others.filter(|other| !other.is_empty());
    match others.any(|other| begins_with(&prefix, other) || begins_with(other, &prefix)) {
        true => format!(".{prefix}"),
        false => prefix,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::api::user_details::CurrentUserDetails;

    use super::*;

    fn named(names: &UserNames, id: &str) -> Option<String> {
        let user = CurrentUserDetails {
            id: Some(id.to_owned()),
            ..CurrentUserDetails::default()
        };
        Some(names.apply(user).ok()?.id?.to_ascii_lowercase())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_two_issuers_have_a_user_of_the_same_name(
            prefixes in prop::collection::vec("([aAb:]{0,3}|s|system:|system:a)", 2..4),
            with_cluster: bool,
            one in "[aAb:]{1,6}|system:[a:]{0,2}",
            other in "[aAb:]{1,6}|system:[a:]{0,2}",
        ) {
            let table = |prefix| UserPrefix { issuer: "a", given: prefix, are_of_cluster: prefix.is_none() };
            let tables = prefixes.iter().map(|prefix| table(Some(prefix.as_str())));
            let all: Vec<_> = tables.chain(with_cluster.then(|| table(None))).collect();
            let Ok(names) = names(&all) else { return Ok(()) };
            let id = |position: usize, id: &str| match all[position].are_of_cluster {
                true => format!("system:{id}"),
                false => id.to_owned(),
            };
            for first in 0..all.len() {
                for second in 0..first {
                    let first = named(&names[first], &id(first, &one));
                    let second = named(&names[second], &id(second, &other));
                    prop_assert!(first.is_none() || first != second, "{all:?} {first:?}");
                }
            }
        }
    }
}
