//! Bounds of the revocations: where single tokens are too many, those of one user collapse to a time
//! before which all tokens of that user are revoked, and at last those of everyone.
//!
//! That ends sessions that were not revoked, and brings none back.

use std::collections::BTreeMap;

use super::{Entries, NotBefore, RevokedToken, add_time};

/// Max bytes of the published list before base64: as JWS it stays below what a sidecar reads.
const MAX_PUBLISHED_BYTES: usize = 780_000;
/// Max bytes of the stored entries as JSON.
const MAX_STORED_BYTES: usize = 3 * 1024 * 1024;
/// A published token: a digest of 16 characters, quotes and a comma.
const PUBLISHED_TOKEN: usize = 19;
/// A published user: the same with a time.
const PUBLISHED_TIME: usize = 31;

/// Bytes of entries, published and stored.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    published: usize,
    stored: usize,
}

impl Size {
    fn is_within(self, divisor: usize) -> bool {
        self.published <= MAX_PUBLISHED_BYTES / divisor && self.stored <= MAX_STORED_BYTES / divisor
    }

    fn add(&mut self, other: Self) {
        self.published += other.published;
        self.stored += other.stored;
    }

    fn subtract(&mut self, other: Self) {
        self.published = self.published.saturating_sub(other.published);
        self.stored = self.stored.saturating_sub(other.stored);
    }
}

impl Entries {
    /// Collapses entries beyond the bounds, down to half of them, so that the next ones do not.
    pub(super) fn bound(&mut self, now: i64) {
        let mut size = self.size();
        if size.is_within(1) {
            return;
        }
        for user in self.users_with_most_tokens() {
            if size.is_within(2) {
                return;
            }
            size.subtract(self.collapse_user(&user, now));
        }
        if !size.is_within(1) {
            self.collapse_all(now);
        }
    }

    fn size(&self) -> Size {
        let mut size = Size::default();
        for (id, entry) in &self.tokens {
            size.add(size_of_token(id, entry));
        }
        for (id, entry) in self.users.iter().chain(&self.applications) {
            size.add(size_of_time(id, entry));
        }
        size
    }

    /// Returns the users with more than one token, which their collapse saves.
    fn users_with_most_tokens(&self) -> Vec<String> {
        let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
        for user in self.tokens.values().filter_map(|entry| entry.user.as_ref()) {
            *counts.entry(user).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 1).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.into_iter().map(|(user, _)| user.clone()).collect()
    }

    /// Revokes all tokens of a user in place of single ones; returns the saved bytes.
    fn collapse_user(&mut self, user: &str, now: i64) -> Size {
        let mut saved = Size::default();
        let mut until = i64::MIN;
        self.tokens.retain(|id, entry| {
            let is_theirs = entry.user.as_deref() == Some(user);
            if is_theirs {
                saved.add(size_of_token(id, entry));
                until = until.max(entry.until);
            }
            !is_theirs
        });
        let entry = NotBefore {
            before: now.saturating_add(1),
            until,
        };
        saved.subtract(size_of_time(user, &entry));
        add_time(&mut self.users, user.to_owned(), entry);
        saved
    }

    fn collapse_all(&mut self, now: i64) {
        let until = self.ends().max().unwrap_or(now);
        let times = self.users.values().chain(self.applications.values());
        let latest = times.chain(&self.everyone).map(|entry| entry.before).max();
        self.everyone = Some(NotBefore {
            before: now.saturating_add(1).max(latest.unwrap_or(now)),
            until,
        });
        self.tokens.clear();
        self.users.clear();
        self.applications.clear();
    }
}

fn size_of_token(id: &str, entry: &RevokedToken) -> Size {
    Size {
        published: PUBLISHED_TOKEN,
        stored: id.len() + stored_bytes(entry),
    }
}

fn size_of_time(id: &str, entry: &NotBefore) -> Size {
    Size {
        published: PUBLISHED_TIME,
        stored: id.len() + stored_bytes(entry),
    }
}

fn stored_bytes(entry: &impl serde::Serialize) -> usize {
    // With quotes, colon and comma.
    serde_json::to_vec(entry).map_or(0, |json| json.len()) + 4
}
