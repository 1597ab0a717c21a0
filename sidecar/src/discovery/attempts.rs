//! Which instances were asked lately, and how it went: what the choice of the next depends on.

use std::collections::VecDeque;

use super::Instance;

/// An instance that failed is left aside for so many fetches, as long as there is another.
const REMEMBERED: usize = 5;

/// The last few instances, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Asked(VecDeque<(Instance, bool)>);

impl Asked {
    /// The instance of the last fetch.
    pub(crate) fn last(&self) -> Option<&Instance> {
        self.0.back().map(|(instance, _)| instance)
    }

    /// Those of `found` that did not fail when they were last asked; all of them if every one did.
    pub(crate) fn not_failed<T>(&self, found: Vec<T>, authority: impl Fn(&T) -> String) -> Vec<T> {
        let (failed, others): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|one| self.failed(&authority(one)));
        if others.is_empty() { failed } else { others }
    }

    fn failed(&self, authority: &str) -> bool {
        let mut newest_first = self.0.iter().rev();
        newest_first
            .find(|(instance, _)| instance.authority == authority)
            .is_some_and(|(_, worked)| !worked)
    }

    /// How a fetch from `instance` went.
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
    fn a_failure_is_forgotten_after_a_success_and_after_five_more_fetches() {
        let mut asked = Asked::default();
        assert!(asked.last().is_none() && !asked.failed("a"));
        asked.note(instance("a"), false);
        asked.note(instance("b"), true);
        assert_eq!(asked.last(), Some(&instance("b")));
        assert!(asked.failed("a") && !asked.failed("b"));
        asked.note(instance("b"), false);
        asked.note(instance("b"), true);
        asked.note(instance("b"), true);
        assert!(asked.failed("a") && !asked.failed("b"));
        asked.note(instance("b"), true);
        assert!(!asked.failed("a"));
    }

    #[test]
    fn what_failed_is_left_aside_as_long_as_there_is_another() {
        let mut asked = Asked::default();
        let left = |asked: &Asked| asked.not_failed(vec!["a", "b"], ToString::to_string);
        assert_eq!(left(&asked), ["a", "b"]);
        asked.note(instance("a"), false);
        assert_eq!(left(&asked), ["b"]);
        asked.note(instance("b"), false);
        assert_eq!(left(&asked), ["a", "b"]);
    }
}
