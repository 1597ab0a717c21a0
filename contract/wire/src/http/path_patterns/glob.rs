//! The wildcards `*` and `?` within one segment.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    pub(super) text: String,
    /// True if it matches the empty segment after a trailing slash.
    pub(super) takes_empty: bool,
}

impl Glob {
    /// Matches in one loop: the last `*` takes one more character after each mismatch, so the cost
    /// is at most the product of both lengths.
    pub(super) fn matches(&self, segment: &str) -> bool {
        if segment.is_empty() {
            return self.takes_empty;
        }
        let (mut glob, mut rest) = (self.text.chars(), segment.chars());
        let mut last_star = None;
        loop {
            let (mut after_glob, mut after_rest) = (glob.clone(), rest.clone());
            match (after_glob.next(), after_rest.next()) {
                (None, None) => return true,
                (Some('*'), _) => {
                    last_star = Some((after_glob.clone(), rest.clone()));
                    glob = after_glob;
                }
                (Some(one), Some(character)) if one == '?' || one == character => {
                    (glob, rest) = (after_glob, after_rest);
                }
                _ => {
                    let Some((after_star, taken)) = &mut last_star else {
                        return false;
                    };
                    if taken.next().is_none() {
                        return false;
                    }
                    (glob, rest) = (after_star.clone(), taken.clone());
                }
            }
        }
    }
}
