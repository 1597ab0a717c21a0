//! The sessions of one user, so that the oldest ends when there are too many.

use serde::{Deserialize, Serialize};

use crate::keys::store::records::RecordId;

/// Oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionsOfUser(Vec<Listed>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Listed {
    id: String,
    /// Seconds since the epoch.
    ends: i64,
}

impl SessionsOfUser {
    /// Adds a session at `now`, and returns the oldest beyond `max`.
    pub(super) fn add(
        &mut self,
        id: RecordId,
        (now, ends): (i64, i64),
        max: usize,
    ) -> Vec<RecordId> {
        self.0.retain(|listed| listed.ends > now);
        let id = id.to_string();
        self.0.push(Listed { id, ends });
        let surplus = self.0.len().saturating_sub(max);
        let surplus = self.0.drain(..surplus);
        surplus
            .filter_map(|listed| RecordId::parse(&listed.id))
            .collect()
    }

    pub(super) fn remove(&mut self, id: RecordId) {
        let id = id.to_string();
        self.0.retain(|listed| listed.id != id);
    }

    /// Returns the end of the last session; `None` without any.
    pub(super) fn ends(&self) -> Option<i64> {
        self.0.iter().map(|listed| listed.ends).max()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn id(number: u8) -> RecordId {
        RecordId::from_start(&[number; RecordId::LENGTH]).unwrap()
    }

    #[test]
    fn the_oldest_live_sessions_beyond_the_limit_are_returned() {
        let mut sessions = SessionsOfUser::default();
        for number in 1..=3 {
            let times = (10, 100 + i64::from(number));
            assert_eq!(sessions.add(id(number), times, 3), []);
        }
        assert_eq!(sessions.add(id(4), (20, 120), 3), [id(1)]);
        sessions.remove(id(3));
        assert_eq!(sessions.add(id(5), (20, 115), 3), []);
        assert_eq!(sessions.add(id(6), (102, 110), 3), [], "one has ended");
        assert_eq!(sessions.add(id(7), (102, 110), 2), [id(4), id(5)]);
        assert_eq!(sessions.ends(), Some(110));
        let text = serde_json::to_string(&sessions).unwrap();
        assert_eq!(
            serde_json::from_str::<SessionsOfUser>(&text).unwrap(),
            sessions
        );
        sessions.remove(id(6));
        sessions.remove(id(7));
        assert_eq!(sessions.ends(), None);
    }
}
