//! Every disguise of a path that a rule names meets the rule, and opens nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use http::{HeaderMap, Method};
use postern_contract::rules::{AccessRules, Requirement, Rule, RuleRequest, Unmatched};
use postern_http::path::canonical::RequestPath;
use postern_http::path::patterns::{ContextPath, PassList, PathPattern};
use proptest::collection::vec;
use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;

const CONTEXT: &str = "/orders";

/// Pieces of names, and what wildcards may stand for.
const LETTERS: &str = "a B i I s S ss f l t k 1 - _ . é E\u{301} \u{301} \u{323} \u{307} \u{345} ß ẞ \
                       ﬁ ﬃ ﬆ ŉ İ ı \u{212a} ſ Σ ς ΐ ᾂ ǰ ǅ 한 \u{1100}\u{1161} \u{11a8} क़ 你 \u{1d160} \
                       ֭ב + @ ~ %40 %2D %5f %2a %7C ａ ｶ\u{ff9e} … ？ ； ％ ． ⒈ 𝒶 ⓚ ㎏ Ⅷ ½ ǆ \u{200b} \u{ad} \u{3164}";
const BLANKS: [&str; 3] = [" ", "\u{a0}", "\u{2003}"];

fn letters(length: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let pieces: Vec<&str> = LETTERS.split(' ').chain(BLANKS).collect();
    let plain = prop::sample::select(pieces).prop_map(str::to_owned);
    let other = any::<char>()
        .prop_filter("no separator", |c| {
            !"/\\%;?#*{}".contains(*c) && !c.is_control()
        })
        .prop_map(String::from);
    vec(prop_oneof![9 => plain, 1 => other], length).prop_map(|letters| letters.concat())
}

/// A segment of a pattern, and one of a path that it matches.
fn segment() -> impl Strategy<Value = (String, String)> {
    let piece = prop_oneof![
        4 => letters(1..3).prop_map(|text| (text.clone(), text)),
        2 => letters(0..3).prop_map(|text| ("*".to_owned(), text)),
        3 => letters(1..2).prop_map(|text| {
            let one: String = text.chars().take(1).collect();
            ("?".to_owned(), one)
        }),
    ];
    let any = vec(letters(1..3), 0..3).prop_map(|names| ("**".to_owned(), names.join("/")));
    let name = vec(piece, 1..4).prop_map(|pieces| {
        let (glob, name): (Vec<_>, Vec<_>) = pieces.into_iter().unzip();
        (glob.concat(), name.concat())
    });
    prop_oneof![6 => name, 1 => any]
}

/// A pattern and a path that it may match.
fn pattern_and_path() -> impl Strategy<Value = (String, String)> {
    let slash = prop_oneof![4 => Just(""), 1 => Just("/")];
    (vec(segment(), 1..4), slash).prop_map(|(segments, slash)| {
        let (globs, names): (Vec<_>, Vec<_>) = segments.into_iter().unzip();
        let names: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).collect();
        (
            format!("/{}{slash}", globs.join("/")),
            format!("/{}{slash}", names.join("/")),
        )
    })
}

/// Changes after which a lenient service takes a path for the same.
const DISGUISES: &str = "capitals, small letters, composed, decomposed, other cases, dots after, \
    blanks after, blank before, plus before, pluses, wide, compatible, invisible, stream, slash, \
    no slash, suffix, parameter, double slash, escaped letter, escaped marks, blank name, stream name";

/// Letters that some program takes for one another.
const ALIKE: [(&str, &str); 7] = [
    ("i", "İ"),
    ("i", "ı"),
    ("k", "\u{212a}"),
    ("s", "ſ"),
    ("ß", "ẞ"),
    ("å", "\u{212b}"),
    ("İ", "i"),
];

const COMPATIBLE: [(&str, &str); 5] = [
    ("ss", "ſſ\u{2060}"),
    ("k1", "ⓚ①"),
    ("fi", "ﬁ"),
    ("il", "ⅰl"),
    ("tk", "ₜ\u{1d4f4}"),
];

/// Returns the wide form of a letter, if there is one.
fn wide(c: char) -> char {
    let has_wide = c.is_ascii_alphanumeric() || "-_:+".contains(c);
    let wide = u32::from(c) + 0xfee0;
    char::from_u32(wide).filter(|_| has_wide).unwrap_or(c)
}

/// Marks of an encoding that is no text: they become bytes of the request line as they are.
const PARAMETER: &str = "\u{e000}";
const DOUBLE_SLASH: &str = "\u{e001}";
const ESCAPED: &str = "\u{e002}";
/// Before a character that is escaped.
const ESCAPING: char = '\u{e003}';

fn disguised(path: &str, disguise: &str) -> String {
    let each_name = |change: &dyn Fn(&str) -> String| {
        let names = path.split('/').map(|name| match name {
            "" => String::new(),
            name => change(name),
        });
        names.collect::<Vec<_>>().join("/")
    };
    match disguise {
        "capitals" => path.to_uppercase(),
        "small letters" => path.to_lowercase(),
        "composed" => path.nfc().collect(),
        "decomposed" => path.nfd().collect(),
        // Each letter in turn, as Turkish and old tables read it.
        "other cases" => {
            let replace = |path: String, (one, other): &(&str, &str)| path.replace(one, other);
            ALIKE.iter().fold(path.to_owned(), replace)
        }
        "dots after" => each_name(&|name| format!("{name}..")),
        "blanks after" => each_name(&|name| format!("{name} \u{a0}")),
        "blank before" => each_name(&|name| format!(" {name}")),
        "plus before" => each_name(&|name| format!("+{name}")),
        // A plus for each blank.
        "pluses" => path.replace(' ', "+"),
        // Wide letters, as of Chinese and Japanese keyboards.
        "wide" => path.chars().map(wide).collect(),
        // One letter that is compatible with two.
        "compatible" => {
            let replace = |path: String, (two, one): &(&str, &str)| path.replace(two, one);
            COMPATIBLE.iter().fold(path.to_owned(), replace)
        }
        // Characters without width around and between all letters.
        "invisible" => each_name(&|name| {
            let letters = name.chars().map(|c| format!("{c}\u{200d}"));
            format!("\u{feff}{}", letters.collect::<String>())
        }),
        // No file on Windows has a colon in its name.
        "stream" if path.nfkc().any(|c| c == ':') => path.to_owned(),
        "stream" => each_name(&|name| format!("{name}:s:$DATA")),
        "slash" => format!("{}/", path.trim_end_matches('/')),
        "no slash" => match path.trim_end_matches('/') {
            "" => path.to_owned(),
            rest => rest.to_owned(),
        },
        "suffix" => format!("{}.json", path.trim_end_matches('/')),
        "parameter" => format!("{path}{PARAMETER}"),
        "double slash" => path.replacen('/', DOUBLE_SLASH, 1),
        // A name that is empty to who trims or cuts it.
        "blank name" => path.replacen('/', "/+/", 1),
        "stream name" => path.replacen('/', "/:s/", 1),
        "escaped letter" => path.replacen('a', ESCAPED, 1),
        "escaped marks" => {
            let is_mark = |c: char| c.is_ascii_punctuation() && !"/.%".contains(c);
            let escaped = |c| is_mark(c).then_some(ESCAPING).into_iter().chain([c]);
            path.chars().flat_map(escaped).collect()
        }
        other => unreachable!("{other}"),
    }
}

/// Writes a path below the context path as a request line has it.
fn request_line(path: &str) -> String {
    let mut raw = CONTEXT.to_owned();
    let mut is_escaped = false;
    for c in path.chars() {
        let mut utf8 = [0; 4];
        match c {
            ESCAPING => {}
            '\u{e000}' => raw.push_str(";v=1"),
            '\u{e001}' => raw.push_str("//"),
            '\u{e002}' => raw.push_str("%61"),
            c if c.is_ascii() && c != ' ' && !is_escaped => raw.push(c),
            c => {
                let bytes = c.encode_utf8(&mut utf8).bytes();
                raw.extend(bytes.map(|byte| format!("%{byte:02X}")));
            }
        }
        is_escaped = c == ESCAPING;
    }
    raw
}

/// Returns a pattern with escapes of its blanks.
fn without_blanks(pattern: &str) -> String {
    let escaped = |c: char| {
        if c.is_whitespace() {
            request_line(&c.to_string()).replace(CONTEXT, "")
        } else {
            c.to_string()
        }
    };
    pattern.chars().map(escaped).collect()
}

fn rules(pattern: &PathPattern, unmatched: Unmatched) -> AccessRules {
    let rule = Rule {
        name: "rule".to_owned(),
        methods: postern_http::methods::Methods::default(),
        paths: vec![pattern.clone()],
        requirement: Requirement::default(),
    };
    AccessRules::new(vec![rule], unmatched)
}

/// Returns true if the list matches the path exactly as it is written.
fn is_named(list: &PassList, context: &ContextPath, raw: &str) -> Option<bool> {
    let path = RequestPath::parse(raw.as_bytes()).ok()?;
    let relative = context.strip(&path);
    Some(relative.is_some_and(|path| list.matches(path)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16 * ProptestConfig::default().cases, failure_persistence: None, max_global_rejects: 4_000_000, ..ProptestConfig::default() })]

    #[test]
    fn every_disguise_of_what_a_pattern_matches_meets_its_rule(
        (pattern, path) in pattern_and_path(),
        disguises in vec(prop::sample::select(DISGUISES.split(", ").collect::<Vec<_>>()), 0..4),
    ) {
        let Ok(parsed) = without_blanks(&pattern).parse::<PathPattern>() else { return Err(TestCaseError::reject("no pattern")) };
        let context: ContextPath = CONTEXT.parse().unwrap();
        let list: PassList = std::iter::once(parsed.clone()).collect();
        prop_assume!(is_named(&list, &context, &request_line(&path)) == Some(true));
        // Frameworks cut one suffix.
        prop_assume!(disguises.iter().filter(|disguise| **disguise == "suffix").count() < 2);
        let disguised = disguises.iter().fold(path.clone(), |path, disguise| disguised(&path, disguise));
        let raw = request_line(&disguised);
        let (method, headers) = (Method::GET, HeaderMap::new());
        let request = RuleRequest { method: &method, headers: &headers, path: raw.as_bytes() };
        for unmatched in [Unmatched::Token, Unmatched::Deny] {
            let rules = rules(&parsed, unmatched);
            prop_assert_eq!(&*rules.matching(request, &context), &[0], "{} {} {:?} {}", pattern, path, disguises, raw);
            // Without a verdict no rule holds.
            prop_assert!(rules.check(request, &context, &[]).is_err());
        }
    }
}
