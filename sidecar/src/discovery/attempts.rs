//! Recent fetches and their results, for the choice of the next instance.

use std::collections::VecDeque;

use super::Instance;

/// Number of fetches for which a failed instance is skipped, as long as there is another.
const REMEMBERED: usize = 5;

/// The last few instances, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecentAttempts(VecDeque<(Instance, bool)>);

impl RecentAttempts {
    /// Returns the instance of the last fetch.
    pub(crate) fn last(&self) -> Option<&Instance> {
        self.0.back().map(|(instance, _)| instance)
    }

    /// Returns the instances of `found` whose last fetch did not fail; all of them if each failed.
    pub(crate) fn not_failed<T>(&self, found: Vec<T>, authority: impl Fn(&T) -> String) -> Vec<T> {
        let (failed, others): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|one| self.has_failed(&authority(one)));
        if others.is_empty() { failed } else { others }
    }

    fn has_failed(&self, authority: &str) -> bool {
        // The last attempt counts.
        for (instance, worked) in self.0.iter().rev() {
            if instance.authority == authority {
                return !worked;
            }
        }
        false
    }

    /// Records the result of a fetch from `instance`.
    pub(crate) fn note(&mut self, instance: Instance, worked: bool) {
        self.0.push_back((instance, worked));
        if self.0.len() > REMEMBERED {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(authority: &str) -> Instance {
        Instance {
            authority: authority.to_owned(),
            address: None,
            host: authority.to_owned(),
        }
    }

    #[test]
    fn a_failure_is_forgotten_after_a_success_or_five_fetches() {
        let mut attempts = RecentAttempts::default();
        assert!(attempts.last().is_none() && !attempts.has_failed("a"));
        attempts.note(instance("a"), false);
        attempts.note(instance("b"), true);
        assert_eq!(attempts.last(), Some(&instance("b")));
        assert!(attempts.has_failed("a") && !attempts.has_failed("b"));
        attempts.note(instance("b"), false);
        attempts.note(instance("b"), true);
        attempts.note(instance("b"), true);
        assert!(attempts.has_failed("a") && !attempts.has_failed("b"));
        attempts.note(instance("b"), true);
        assert!(!attempts.has_failed("a"));
    }

    #[test]
    fn failed_instances_are_skipped_while_there_is_another() {
        let mut attempts = RecentAttempts::default();
        let left =
            |attempts: &RecentAttempts| attempts.not_failed(vec!["a", "b"], ToString::to_string);
        assert_eq!(left(&attempts), ["a", "b"]);
        attempts.note(instance("a"), false);
        assert_eq!(left(&attempts), ["b"]);
        attempts.note(instance("b"), false);
        assert_eq!(left(&attempts), ["a", "b"]);
    }
}
