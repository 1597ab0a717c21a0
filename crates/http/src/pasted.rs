//! Values as they were pasted: manifests, files of variables and templates leave marks around them, or in
//! them, that no value has. The texts do not repeat a value, which may be a secret.

const QUOTES: [[char; 2]; 3] = [['"', '"'], ['\'', '\''], ['“', '”']];
/// The marks of variables in Kubernetes, in shells and Compose, and in templates.
const VARIABLES: [[&str; 2]; 3] = [["$(", ")"], ["${", "}"], ["{{", "}}"]];
const UNREPLACED: &str = "holds a $(NAME), ${NAME} or {{NAME}} that was not replaced: Kubernetes replaces variables \
                          that stand above it in the same container";

/// Returns the error in a value.
pub fn error_of(text: &str) -> Option<&'static str> {
    if holds_variable(text) {
        Some(UNREPLACED)
    } else {
        error_around(text)
    }
}

/// Returns the error around a list, whose members may have blanks around them.
pub fn error_of_list(text: &str) -> Option<&'static str> {
    match text.trim() {
        text if is_within(text, ['[', ']']) => Some(
            "is in brackets: commas alone separate the members of a list, as in orders,billing",
        ),
        text => error_around(text),
    }
}

/// Returns the error in a secret as a whole: a random secret may hold the marks of a variable.
pub fn error_of_secret(text: &str) -> Option<&'static str> {
    for [open, close] in VARIABLES {
        if text.starts_with(open) && text.ends_with(close) && holds_variable(text) {
            return Some(UNREPLACED);
        }
    }
    None
}

/// Returns the error at the ends of a value.
pub fn error_around(text: &str) -> Option<&'static str> {
    match text {
        _ if text.trim() != text => Some("has a blank at an end, or a line end"),
        _ if QUOTES.into_iter().any(|quotes| is_within(text, quotes)) => {
            Some("is in quotes: leave them out")
        }
        _ => None,
    }
}

/// Returns true for a letter that separates the members of other programs' lists.
pub fn is_separator(letter: char) -> bool {
    letter == ';' || letter.is_whitespace()
}

fn is_within(text: &str, [open, close]: [char; 2]) -> bool {
    text.len() > 1 && text.starts_with(open) && text.ends_with(close)
}

fn holds_variable(text: &str) -> bool {
    for [open, close] in VARIABLES {
        // Each mark is checked: a harmless `$(1)` may stand before a variable.
        for name in text.split(open).skip(1) {
            if name.starts_with(begins_name) && name.contains(close) {
                return true;
            }
        }
    }
    false
}

fn begins_name(letter: char) -> bool {
    letter.is_ascii_alphabetic() || "_ .".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_templates_and_manifests_leave_is_named() {
        const VARIABLE: Option<&str> = Some("holds a $(NAME)");
        const QUOTED: Option<&str> = Some("is in quotes");
        for (text, of_value, of_list, of_secret) in [
            ("", None, None, None),
            ("\"", None, None, None),
            ("a$b", None, None, None),
            ("/Products(1)/$value", None, None, None),
            ("$()", None, None, None),
            ("a\"b", None, None, None),
            ("http://$(HOST):1", VARIABLE, None, None),
            ("http://h/$(1)/$(HOST)", VARIABLE, None, None),
            ("$(_A)", VARIABLE, None, VARIABLE),
            ("${A:-b}", VARIABLE, None, VARIABLE),
            ("{{ .Values.a }}", VARIABLE, None, VARIABLE),
            ("\"a\"", QUOTED, QUOTED, None),
            ("“a”", QUOTED, QUOTED, None),
            ("'a','b'", QUOTED, QUOTED, None),
            ("[\"a\"]", None, Some("is in brackets"), None),
            (" a", Some("has a blank"), None, None),
        ] {
            for (found, expected) in [
                (error_of(text), of_value),
                (error_of_list(text), of_list),
                (error_of_secret(text), of_secret),
            ] {
                let is_expected = match (found, expected) {
                    (Some(found), Some(expected)) => found.starts_with(expected),
                    (found, expected) => found == expected,
                };
                assert!(is_expected, "{text}: {found:?}");
            }
        }
    }
}
