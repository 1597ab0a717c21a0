//! The published lines, in the order of the log, with the chain up to each.

use bytes::Bytes;
use postern_token::revocations::{Chain, ListHead, Revoked};

/// Length in bytes of a part of the text. All readers share the full parts: a list that many clients read
/// slowly, each at another time, is in memory once.
const PART: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(crate) struct List {
    parts: Vec<Bytes>,
    /// The beginning of the next part.
    rest: Vec<u8>,
    /// The end of each line in the text, and the chain up to it.
    marks: Vec<(usize, Chain)>,
}

impl List {
    pub(super) fn push(&mut self, revoked: Revoked) {
        let line = revoked.to_string();
        let chain = self.chain().next(&line);
        self.rest.extend_from_slice(line.as_bytes());
        self.rest.push(b'\n');
        if let Some((part, rest)) = self.rest.split_at_checked(PART) {
            self.parts.push(Bytes::copy_from_slice(part));
            self.rest = rest.to_vec();
        }
        self.marks.push((self.bytes(), chain));
    }

    pub(super) fn bytes(&self) -> usize {
        self.parts.len() * PART + self.rest.len()
    }

    pub(super) fn chain(&self) -> Chain {
        self.marks
            .last()
            .map(|(_, chain)| *chain)
            .unwrap_or_default()
    }

    pub(crate) fn head(&self, seq: i64, issued_at: i64) -> ListHead {
        ListHead::new(&self.chain(), seq.unsigned_abs(), issued_at)
    }

    /// Returns the bytes of the lines that a reader knows; `None` if it knows others.
    fn end_of_known(&self, cursor: Option<&str>) -> Option<usize> {
        let cursor = cursor?;
        let (count, _) = cursor.split_once('.')?;
        let last = count.parse::<usize>().ok()?.checked_sub(1)?;
        let (end, chain) = self.marks.get(last)?;
        // Another chain: the reader has lines of a list that began anew, so it reads all.
        (chain.cursor() == cursor).then_some(*end)
    }

    /// Returns the lines after the known lines of a reader, in parts; all lines if the reader knows others.
    pub(crate) fn after(&self, cursor: Option<&str>) -> Vec<Bytes> {
        let mut known = self.end_of_known(cursor).unwrap_or_default();
        let rest = Bytes::copy_from_slice(&self.rest);
        let new = self.parts.iter().chain([&rest]).filter_map(|part| {
            let begin = known.min(part.len());
            known -= begin;
            (begin < part.len()).then(|| part.slice(begin..))
        });
        new.collect()
    }
}
