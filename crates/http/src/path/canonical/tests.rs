//! Paths that are canonical, and the ways in which others are not.

use super::*;

/// Returns `canonical`, `opaque` (never on the pass list), `hiding` (rejected beside rules) or
/// `rejected`.
fn class(path: &[u8]) -> &'static str {
    match RequestPath::parse(path) {
        Err(_) => "rejected",
        Ok(path) if path.canonical().is_some() => "canonical",
        Ok(path) if path.hides_separators() => "hiding",
        Ok(_) => "opaque",
    }
}

#[test]
fn the_quick_check_agrees_with_every_rule() {
    let alphabet = b"/.a%2e;\\ ()\xc0";
    let (mut quick, mut path) = (0, Vec::new());
    for number in 0..alphabet.len().pow(5) {
        path.clear();
        path.push(b'/');
        let digits = (0..5).map(|exponent| number / alphabet.len().pow(exponent));
        path.extend(digits.filter_map(|digit| alphabet.get(digit % alphabet.len())));
        quick += usize::from(is_evidently_canonical(&path));
        let text = path.escape_ascii();
        let every_rule = RequestPath::parse_any(&path);
        assert_eq!(RequestPath::parse(&path), every_rule, "{text}");
    }
    assert!(quick > 1000, "{quick}");
}

/// The characters that clients escape or leave as they like, and those that they have to escape.
#[test]
fn each_character_of_ascii_has_one_class() {
    let (either, escaped) = ("!$&'()*+,-:=@[]^_|~", "\"<>`{}");
    for byte in b'!'..=b'~' {
        let letter = char::from(byte);
        let expected = match letter {
            '/' | '.' => ["canonical", "opaque"],
            '\\' => ["hiding", "hiding"],
            '%' => ["rejected", "opaque"],
            letter if letter.is_ascii_alphanumeric() => ["canonical", "opaque"],
            letter if either.contains(letter) => ["canonical", "canonical"],
            letter if escaped.contains(letter) => ["opaque", "canonical"],
            _ => ["opaque", "opaque"],
        };
        let paths = [format!("/a{letter}"), format!("/a%{byte:02x}")];
        assert_eq!(
            paths.map(|path| class(path.as_bytes())),
            expected,
            "{letter}"
        );
    }
}

#[test]
fn no_normalisation_of_unicode_makes_another_path() {
    let is_separator = |c| matches!(c, '/' | '\\');
    for c in '\u{a0}'..=char::MAX {
        let text = [c].into_iter();
        let mut becomes = text.clone().nfkd().chain(text.clone().nfkc());
        let stays = !becomes.any(is_separator) || is_separator_alike(c);
        assert!(stays, "U+{:04X}", u32::from(c));
        let form: String = text.nfkc().collect();
        let stays = !matches!(form.as_str(), "." | "..") || is_dot(c);
        assert!(stays, "U+{:04X}", u32::from(c));
        let path = format!("/{c}2e");
        let stays = !form.ends_with('%') || class(path.as_bytes()) == "opaque";
        assert!(stays, "U+{:04X}", u32::from(c));
    }
}

#[test]
fn the_part_for_which_a_path_is_rejected_is_named_alone() {
    let hidden = "is or hides a dot, a slash, a backslash or a control character";
    for (path, part) in [
        ("/a/%zz", "`%zz` in segment 2 of the path is no escape"),
        ("/a/b%2", "`%2` in segment 2 of the path is no escape"),
        ("/a/%", "`%` in segment 2 of the path is no escape"),
        ("/a;b/100%25/x%5Cy", "`%5C` in segment 3 of the path"),
        ("/a\\b", "`\\\\` in segment 1 of the path"),
        ("/a/%25252f", "`%25252f` in segment 2 of the path"),
        ("/a/%25%32%46", "segment 2 of the path is or hides"),
        ("/a/b%250a", "`%250a` in segment 2 of the path"),
        (
            "/a%5cb/%2e%2E;c/d",
            "segment 2 of the path is a dot segment",
        ),
        ("/a%2F..%2Fb", "segment 1 of the path is a dot segment"),
        ("/%C0%AE", "segment 1 of the path holds UTF-8"),
        ("*", "the path does not begin with a slash"),
    ] {
        assert_ne!(class(path.as_bytes()), "canonical", "{path}");
        let found = rejected_part(path.as_bytes());
        assert!(found.starts_with(part), "{path}: {found}");
    }
    assert!(rejected_part(b"/a%00").ends_with(hidden));
}

#[test]
fn a_path_begins_with_a_slash() {
    for path in ["", "*", "a"] {
        assert_eq!(class(path.as_bytes()), "rejected", "{path}");
    }
}

#[test]
fn deep_escape_chains_end_soon() {
    let chain = format!("/{}41", "%25".repeat(2_000));
    assert_eq!(class(chain.as_bytes()), "opaque");
    let chain = format!("/%{}41", "25".repeat(4_000));
    assert_eq!(class(chain.as_bytes()), "rejected");
}

#[test]
fn a_path_has_a_length_whatever_is_in_it() {
    for bytes in ["a", ";", "\\"] {
        let path = |length: usize| format!("/{}", bytes.repeat(length - 1));
        let too_long =
            |path: &str| RequestPath::parse(path.as_bytes()) == Err(InvalidRequest::PathTooLong);
        assert!(!too_long(&path(MAX_PATH_BYTES)), "{bytes}");
        assert!(too_long(&path(MAX_PATH_BYTES + 1)), "{bytes}");
    }
}
