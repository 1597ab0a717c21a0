//! Cause of each reason code, and what to do: the one source of `docs/reasons.md` and of
//! `explain`.

use super::Rejection;

/// A paragraph for each code: the code, the cause and the action, a line each.
const TEXTS: &str = include_str!("help.txt");

/// Help for clients and operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Help {
    /// The cause, in plain words.
    pub cause: &'static str,
    /// The steps to take.
    pub action: &'static str,
}

impl Rejection {
    /// Returns cause and action. Text between backticks is code.
    pub fn help(self) -> Help {
        let [cause, action] = Help::texts(self.reason());
        Help { cause, action }
    }
}

impl Help {
    /// Returns cause and action for a reason code.
    pub fn texts(reason: &str) -> [&'static str; 2] {
        let mut lines = TEXTS.lines().skip_while(|line| *line != reason).skip(1);
        [(); 2].map(|()| lines.next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_cause_and_action_in_whole_sentences() {
        assert_eq!(TEXTS.lines().count() + 1, Rejection::ALL.len() * 4);
        for rejection in Rejection::ALL {
            let Help { cause, action } = rejection.help();
            for text in [cause, action] {
                assert!(
                    text.ends_with('.') && text.len() > 20,
                    "{rejection}: {text}"
                );
                assert_eq!(text.matches('`').count() % 2, 0, "{rejection}: {text}");
            }
        }
    }
}
