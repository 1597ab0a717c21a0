//! The prefixes that tell the users of several issuers apart: two issuers may both have a user 1.

use std::fmt::Display;

use postern_http::folding::begins_alike;
use postern_process::exit::ExitError;

use super::table_error;
use crate::decision::issuers::UserNames;

/// The beginning of all names in a Kubernetes cluster.
const OF_CLUSTER: &str = "system:";

/// The prefix of the users of one issuer.
#[derive(Debug, Clone, Copy)]
pub(super) struct UserPrefix<'a> {
    /// The name of the issuer.
    pub(super) issuer: &'a str,
    /// The configured prefix; `None` if the issuer's table has no such line.
    pub(super) given: Option<&'a str>,
    /// True for the issuer of a Kubernetes cluster.
    pub(super) is_cluster: bool,
    /// True if other claims than a cluster's names are the names of its users.
    pub(super) are_mapped: bool,
}

impl<'a> UserPrefix<'a> {
    /// Returns true if every name begins with `system:` by itself.
    const fn needs_none(&self) -> bool {
        self.is_cluster && !self.are_mapped
    }

    fn is_missing(&self) -> bool {
        self.given.is_none() && !self.needs_none()
    }

    /// Returns the beginning of the names of these users.
    fn beginning(&self) -> &'a str {
        match self.given {
            None if self.needs_none() => OF_CLUSTER,
            given => given.unwrap_or_default(),
        }
    }

    fn error(&self, why: impl Display) -> ExitError {
        let prefix = self.beginning();
        table_error(self.issuer, format!("user-prefix '{prefix}': {why}"))
    }
}

/// Returns the names of the users of each issuer.
///
/// # Errors
/// [`ExitError::Config`] for a prefix that is missing, begins another one, or begins like a cluster's names.
pub(super) fn names(all: &[UserPrefix<'_>]) -> Result<Vec<UserNames>, ExitError> {
    if all.len() > 1 && all.iter().any(UserPrefix::is_missing) {
        return Err(missing(all));
    }
    let mut names = Vec::new();
    for (position, one) in all.iter().enumerate() {
        let (before, behind) = (all.iter().take(position), all.iter().skip(position + 1));
        let others: Vec<_> = before.chain(behind).collect();
        for other in &others {
            if overlap(one, other) {
                return Err(one.error(format!(
                    "begins the prefix of {}, or is the same",
                    other.issuer
                )));
            }
        }
        // The service may trust names of service accounts, which no other issuer may give.
        let beside_cluster = !one.is_cluster && others.iter().any(|other| other.is_cluster);
        if beside_cluster && may_be_alike(one.beginning(), OF_CLUSTER) {
            return Err(one.error(format!(
                "beside kubernetes:/// no other names begin with '{OF_CLUSTER}'"
            )));
        }
        // Beginnings of the names of other issuers' users: a token whose user has such a name is rejected.
        let mut other_beginnings = Vec::new();
        for beginning in others.iter().map(|other| other.beginning()) {
            // The empty prefix begins every name. Names of the issuer that has it are compared with the other prefixes.
            if !beginning.is_empty() {
                other_beginnings.push(beginning.to_owned());
            }
        }
        if beside_cluster {
            other_beginnings.push(OF_CLUSTER.to_owned());
        }
        names.push(UserNames {
            prefix: one.given.unwrap_or_default().to_owned(),
            other_beginnings,
        });
    }
    Ok(names)
}

/// Returns true if a name could belong to users of both issuers; only the empty prefix may begin another one.
fn overlap(one: &UserPrefix<'_>, other: &UserPrefix<'_>) -> bool {
    let (one, other) = (one.beginning(), other.beginning());
    one.is_empty() == other.is_empty() && begins_alike(other, one)
}

/// Returns true if one of two beginnings begins the other; an empty beginning is not compared.
fn may_be_alike(one: &str, other: &str) -> bool {
    let is_empty = one.is_empty() || other.is_empty();
    !is_empty && (begins_alike(one, other) || begins_alike(other, one))
}

/// Names the missing lines: the empty prefix keeps the names of the first issuer's users.
fn missing(all: &[UserPrefix<'_>]) -> ExitError {
    // Two empty prefixes would mix the users of two issuers.
    let is_taken = all.iter().any(|one| one.given == Some(""));
    let first = all.iter().position(|one| !one.needs_none());
    let mut lines = Vec::new();
    for (position, one) in all.iter().enumerate() {
        if !one.is_missing() {
            continue;
        }
        let prefix = if Some(position) == first && !is_taken {
            String::new()
        } else {
            proposed_prefix(one.issuer, all)
        };
        lines.push(format!("`user-prefix = \"{prefix}\"` to {}", one.issuer));
    }
    ExitError::Config(format!(
        "[[issuer]]: several issuers may have users of the same id, so each table needs a `user-prefix`, which is put \
         before id and account (a changed one makes new users for the service); add {}",
        lines.join(", ")
    ))
}

/// Returns the name with a colon, and with a dot in front if another prefix begins with that.
fn proposed_prefix(issuer: &str, all: &[UserPrefix<'_>]) -> String {
    let prefix = format!("{issuer}:");
    for other in all {
        let is_like_cluster = other.is_cluster && may_be_alike(&prefix, OF_CLUSTER);
        if is_like_cluster || may_be_alike(&prefix, other.beginning()) {
            return format!(".{prefix}");
        }
    }
    prefix
}

#[cfg(test)]
mod tests {
    use postern_http::folding::folded;
    use postern_token::claims::user_details::CurrentUserDetails;
    use proptest::prelude::*;

    use super::*;

    fn named(names: &UserNames, id: &str) -> Option<String> {
        let user = CurrentUserDetails {
            id: Some(id.to_owned()),
            ..CurrentUserDetails::default()
        };
        let id = names.apply(user).ok()?.id?;
        Some(folded(&id).trim_start().to_owned())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_two_issuers_have_a_user_of_the_same_name(
            prefixes in prop::collection::vec("([aAb:]{0,3}|s|system:|system:a)", 2..4),
            cluster in prop::option::of(prop::option::of("[ab:]{0,2}")),
            one in "[aAb:ａ\u{200b} ]{1,6}|[sſ]ystem:[a:]{0,2}",
            other in "[aAb:ａ\u{200b} ]{1,6}|[sſ]ystem:[a:]{0,2}",
        ) {
            let table = |prefix, is_cluster| UserPrefix { issuer: "a", given: prefix, is_cluster, are_mapped: false };
            let tables = prefixes.iter().map(|prefix| table(Some(prefix.as_str()), false));
            let cluster = cluster.as_ref().map(|prefix| table(prefix.as_deref(), true));
            let all: Vec<_> = tables.chain(cluster).collect();
            let Ok(names) = names(&all) else { return Ok(()) };
            let id = |position: usize, id: &str| match all[position].is_cluster {
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
