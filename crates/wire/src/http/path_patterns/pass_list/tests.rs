//! The meaning of patterns, alone and in a list.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::*;

#[test]
fn hostile_paths_cost_at_most_length_times_patterns() {
    let pass_list = PassList::parse(["/**/a*a*a*b/**/c"]).unwrap();
    let path = format!("/{}", "aaaaaaaaaaaaaaaa/".repeat(2_000));
    assert!(!pass_list.matches(&path));
}

/// Matches in the simplest way, for comparison. `any` is true if there is a `**` in the
/// pattern.
fn means(any: bool, pattern: &[&str], path: &[&str]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return path.is_empty();
    };
    if *first == "**" && means(any, rest, path) {
        return true;
    }
    let Some((segment, tail)) = path.split_first() else {
        return false;
    };
    match *first {
        "**" => means(any, pattern, tail),
        "*" => (!any || !segment.is_empty()) && means(any, rest, tail),
        "a*" => segment.starts_with('a') && means(any, rest, tail),
        "?" => segment.len() == 1 && means(any, rest, tail),
        literal => *segment == literal && means(any, rest, tail),
    }
}

/// Returns all sequences of up to `length` of these words.
fn sequences<'w>(words: &[&'w str], length: usize) -> Vec<Vec<&'w str>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..length {
        let longer = |known: &Vec<&'w str>| {
            let longer = words.iter().map(|word| [&known[..], &[*word]].concat());
            longer.collect::<Vec<_>>()
        };
        let longer: Vec<_> = all[from..].iter().flat_map(longer).collect();
        from = all.len();
        all.extend(longer);
    }
    all.remove(0);
    all
}

#[test]
fn one_pattern_or_many_the_meaning_is_the_same() {
    let patterns = sequences(&["a", "b", "*", "?", "a*", "**"], 3);
    let paths = sequences(&["a", "b", "ab", "c"], 4);
    let text = |segments: &[&str]| format!("/{}", segments.join("/"));
    let texts: Vec<_> = patterns.iter().map(|pattern| text(pattern)).collect();
    let all = PassList::parse(texts.iter().map(String::as_str)).unwrap();
    let each: Vec<_> = texts
        .iter()
        .map(|text| PassList::parse([text.as_str()]).unwrap())
        .collect();
    let with_slash = paths.iter().map(|path| [&path[..], &[""]].concat());
    for path in with_slash.chain(paths.iter().cloned()) {
        let written = text(&path);
        let mut first = None;
        for ((pattern, text), alone) in patterns.iter().zip(&texts).zip(&each) {
            let meant = means(pattern.contains(&"**"), pattern, &path);
            assert_eq!(alone.matches(&written), meant, "{text} {written}");
            first = first.or(meant.then_some(text.as_str()));
        }
        let found = all.find_for(None, &written).map(PathPattern::as_str);
        assert_eq!(found, first, "{written}");
    }
}

#[test]
fn methods_in_front_of_a_pattern_limit_it() {
    let reviews = "POST /products/*/reviews";
    let patterns = ["GET,HEAD /products/**", "/open/**", reviews];
    let list = PassList::with_methods(patterns).unwrap();
    assert!(list.depends_on_method());
    assert!(list.patterns().iter().map(PathPattern::as_str).eq(patterns));
    for (method, path, expected) in [
        ("GET", "/products/1", Some(patterns[0])),
        ("HEAD", "/products/1", Some(patterns[0])),
        ("POST", "/products/1", None),
        ("POST", "/products/1/reviews", Some(reviews)),
        ("DELETE", "/open/1", Some(patterns[1])),
        ("", "/products/1", None),
        ("", "/open/1", Some(patterns[1])),
    ] {
        let any = Method::from_bytes(method.as_bytes()).ok();
        let found = list.find_for(any.as_ref(), path).map(PathPattern::as_str);
        assert_eq!(found, expected, "{method:?} {path}");
    }
    assert!(list.matches("/products/1/reviews"));
    for bad in "GET|get /a|GET, HEAD /a|GET/a|GET a| /a|TRACE /a".split('|') {
        assert!(PassList::with_methods([bad]).is_err(), "{bad}");
    }
    assert!(PassList::parse(["GET /a"]).is_err());
}

#[test]
fn the_same_path_may_stand_there_for_several_methods() {
    let patterns = ["GET /a", "POST /a", "/a"];
    let list = PassList::with_methods(patterns).unwrap();
    for (method, expected) in [("GET", 0), ("POST", 1), ("PUT", 2)] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let found = list.find_for(Some(&method), "/a").map(PathPattern::as_str);
        assert_eq!(found, Some(patterns[expected]));
    }
}

#[test]
fn two_globs_at_one_position_lead_to_their_own_patterns() {
    let patterns = ["/a*/x", "/b*/y", "/a*/z"];
    let list = PassList::parse(patterns).unwrap();
    assert!(!list.depends_on_method());
    for (path, expected) in [
        ("/a1/x", Some(patterns[0])),
        ("/b1/y", Some(patterns[1])),
        ("/a1/z", Some(patterns[2])),
        ("/a1/y", None),
        ("/b1/x", None),
    ] {
        let found = list.find_for(None, path).map(PathPattern::as_str);
        assert_eq!(found, expected, "{path}");
    }
}
