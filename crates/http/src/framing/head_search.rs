//! The search for the end of a long head.

use memchr::memmem;

/// Progress of the search: parsing a long head from its beginning with each part would take ever
/// longer.
#[derive(Default)]
pub struct HeadSearch {
    /// Bytes that hold no end of a head.
    searched: usize,
}

impl HeadSearch {
    /// Returns false for `received` of at least `long` bytes without the end of a head.
    pub fn may_be_whole(&mut self, received: &[u8], long: usize) -> bool {
        if received.len() < long {
            return true;
        }
        // The end may begin within the last two bytes of the previous part.
        let from = self.searched.saturating_sub(2);
        self.searched = received.len();
        let added = received.get(from..).unwrap_or_default();
        // An empty line ends a head; some services write it without a carriage return.
        memmem::find(added, b"\n\r\n").is_some() || memmem::find(added, b"\n\n").is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = 8;

    #[test]
    fn a_long_head_is_whole_once_its_end_has_arrived() {
        for end in ["\r\n\r\n", "\n\n"] {
            let head = format!("GET / HTTP/1.1{end}");
            for size in 1..=head.len() {
                let mut search = HeadSearch::default();
                let mut received = Vec::new();
                let mut seen = Vec::new();
                for part in head.as_bytes().chunks(size) {
                    received.extend_from_slice(part);
                    seen.push(search.may_be_whole(&received, LONG));
                }
                let (last, before) = seen.split_last().unwrap_or((&false, &[]));
                assert!(last, "{end:?} by {size}");
                let short = before.len().min((LONG - 1) / size);
                let long = before.get(short..).unwrap_or_default();
                assert!(!long.contains(&true), "{end:?} by {size}: {seen:?}");
            }
        }
    }
}
