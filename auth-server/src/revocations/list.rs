//! The published lines, in the order of the log, with the chain up to each.

use wire::token::revocations::{Chain, ListHead, Revoked};

#[derive(Debug, Default)]
pub(crate) struct List {
    text: String,
    /// The end of each line in the text, and the chain up to it.
    marks: Vec<(usize, Chain)>,
}

impl List {
    pub(super) fn push(&mut self, revoked: Revoked) {
        let line = revoked.to_string();
        let chain = self.chain().next(&line);
        self.text.push_str(&line);
        self.text.push('\n');
        self.marks.push((self.text.len(), chain));
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    pub(super) fn chain(&self) -> Chain {
        self.marks
            .last()
            .map(|(_, chain)| *chain)
            .unwrap_or_default()
    }

    pub(crate) fn head(&self, seq: i64, issued_at: i64) -> ListHead {
        ListHead::of(&self.chain(), seq.unsigned_abs(), issued_at)
    }

    /// Returns the lines after those of a reader; all where it has others.
    pub(crate) fn after(&self, cursor: Option<&str>) -> &str {
        let known = cursor.and_then(|cursor| {
            let (count, _) = cursor.split_once('.')?;
            let last = count.parse::<usize>().ok()?.checked_sub(1)?;
            let (end, chain) = self.marks.get(last)?;
            (chain.cursor() == cursor).then_some(*end)
        });
        self.text
            .get(known.unwrap_or_default()..)
            .unwrap_or_default()
    }
}
