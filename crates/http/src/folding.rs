//! One form of all texts that lenient programs take for the same. Such programs ignore letter case, read wide
//! and other compatible letters as plain ones, and drop characters that are not visible.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::canonical_combining_class;

/// Number of folds: each fold brings a letter closer to its form, and no letter takes more.
const FOLDS: usize = 3;

/// Returns text in one letter case, in compatible letters and decomposed, without characters that are not
/// visible, and with a blank for the `+` of forms. The form of İ is `i`, its small letter in Java and in
/// Python's regular expressions.
pub fn folded(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..FOLDS {
        let folded = fold_once(&text);
        if folded == text {
            break;
        }
        text = folded;
    }
    text
}

/// Folds a text by way of its capitals, because some letters share only their capitals.
fn fold_once(text: &str) -> String {
    let small = text
        .nfkd()
        .filter(|c| !is_invisible(*c))
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase);
    let replaced = small.map(|c| match c {
        // The capital of the mark is the letter, so that other marks change their places.
        IOTA => IOTA_BELOW,
        '+' => ' ',
        c => c,
    });
    let mut folded = String::with_capacity(text.len());
    let mut letter = ' ';
    for c in replaced.nfkd() {
        if !is_mark(c) {
            letter = c;
        }
        if letter != 'i' || c != DOT_ABOVE {
            folded.push(c);
        }
    }
    folded
}

/// Returns a name in the form in which names are compared: NFC.
pub fn composed(name: &str) -> String {
    name.nfc().collect()
}

/// Returns a password in the form in which it is hashed: NFKC, as keyboards differ (NIST SP 800-63B).
pub fn compatible(password: &str) -> String {
    password.nfkc().collect()
}

const DOT_ABOVE: char = '\u{307}';
const IOTA: char = '\u{3b9}';
const IOTA_BELOW: char = '\u{345}';

/// Returns true for a mark that belongs to the letter before it.
pub(crate) fn is_mark(c: char) -> bool {
    !c.is_ascii() && canonical_combining_class(c) != 0
}

/// Returns true for control characters, and for those that programs which do not know them leave
/// out: Default_Ignorable_Code_Point of Unicode.
pub(crate) fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fff8}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns true if a compatible letter of the text stands for several, as ㎏ does for `kg`.
pub(crate) fn is_expanded(text: &str) -> bool {
    for letter in text.chars().filter(|c| !c.is_ascii()) {
        let compatible = std::iter::once(letter).nfkd().filter(is_letter);
        let canonical = std::iter::once(letter).nfd().filter(is_letter);
        if compatible.count() > canonical.count() {
            return true;
        }
    }
    false
}

fn is_letter(c: &char) -> bool {
    !is_mark(*c)
}

/// Returns true for a name that begins so to a database or a person: without regard to letter case,
/// accents, blanks before it and characters that are not visible.
pub fn begins_alike(name: &str, beginning: &str) -> bool {
    if name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return begins_in_any_case(name, beginning);
    }
    begins_in_any_case(
        &without_marks(&folded(name)),
        &without_marks(&folded(beginning)),
    )
}

fn begins_in_any_case(name: &str, beginning: &str) -> bool {
    match name.as_bytes().get(..beginning.len()) {
        Some(start) => start.eq_ignore_ascii_case(beginning.as_bytes()),
        None => false,
    }
}

fn without_marks(folded: &str) -> String {
    folded
        .chars()
        .filter(|c| !is_mark(*c))
        .skip_while(|c| c.is_whitespace())
        .collect()
}

/// Returns a name of a pattern as it is compared with folded paths.
pub(crate) fn loose_name(name: &str) -> String {
    visible(name, &folded(name)).to_owned()
}

/// Returns a folded name as it is compared: trimmed, and a blank where nothing else is left.
pub(crate) fn visible<'n>(name: &str, folded: &'n str) -> &'n str {
    match trimmed(folded) {
        "" if !name.is_empty() => " ",
        trimmed => trimmed,
    }
}

/// Removes the characters that Windows ignores at the end of a name, and blanks at its beginning.
pub(crate) fn trimmed(name: &str) -> &str {
    name.trim_start().trim_end_matches(is_trimmed)
}

/// Returns true for a character that Windows ignores at the end of a name.
pub(crate) fn is_trimmed(c: char) -> bool {
    c == '.' || c.is_whitespace()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::path::patterns::is_of_one_letter;

    #[test]
    fn every_letter_has_one_form_which_a_wildcard_can_stand_for() {
        // Ideographs are their own form.
        let letters = (' '..='\u{33ff}').chain('\u{a000}'..='\u{1ffff}');
        let letters = letters.chain('\u{2f800}'..='\u{2ffff}');
        for c in letters.filter(|c| !c.is_control()) {
            let form = folded(&String::from(c));
            let alike = [
                c.to_lowercase().collect(),
                c.to_uppercase().collect(),
                c.nfc().collect(),
                c.nfd().collect(),
                c.nfkc().collect(),
                c.nfkd().collect(),
                form.clone(),
            ];
            for alike in alike as [String; 7] {
                assert_eq!(folded(&alike), form, "{c:?} {alike:?}");
            }
            let is_blank = !form.is_empty() && form.chars().all(char::is_whitespace);
            assert_eq!(
                c.is_whitespace() || "+＋⁺₊﬩﹢".contains(c),
                is_blank,
                "{c:?}"
            );
            let without_marks: Vec<char> = form.chars().filter(|c| !is_mark(*c)).collect();
            let fits = match without_marks.len() {
                0 | 1 => true,
                2 | 3 if is_of_one_letter(&form) => true,
                _ => is_expanded(&String::from(c)),
            };
            assert!(fits, "{c:?} {form:?}");
        }
    }

    proptest! {
        #[test]
        fn what_programs_ignore_is_left_out(
            ignored in "[\\p{Default_Ignorable_Code_Point}\\p{Cc}]{1,4}",
            seen in "\\P{Default_Ignorable_Code_Point}",
        ) {
            prop_assert_eq!(folded(&format!("a{ignored}B")), "ab");
            let is_control = seen.chars().any(char::is_control);
            prop_assert!(is_control || seen.chars().all(|c| !is_invisible(c)), "{:?}", seen);
        }
    }

    #[test]
    fn a_name_begins_as_others_whatever_letters_it_is_written_in() {
        for (name, begins) in [
            ("system:a", true),
            ("System:a", true),
            ("ſystem:a", true),
            ("ｓｙｓｔｅｍ：a", true),
            (" system:a", true),
            ("\u{a0}\tsystem:a", true),
            ("\u{0}system:a", true),
            ("\u{feff}sys\u{ad}tem:a", true),
            ("sýstém:a", true),
            ("system:\u{301}", true),
            ("system", false),
            ("a system:a", false),
            ("systém-a", false),
            ("", false),
        ] {
            assert_eq!(begins_alike(name, "sysTem:"), begins, "{name:?}");
        }
        assert!(begins_alike("a b：", "A+b:"));
    }
}
