//! The meaning of patterns, alone and in a list.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::*;

/// Lists of many patterns, which no path below matches, and a path whose comparison costs much.
const EXPENSIVE: [(usize, &str, &str, usize); 4] = [
    (256, "/**/*a*b*c{}/**/z{}*", "/a", 4_000),
    (2_048, "/a/**/b*{}/**", "/a/b", 2_000),
    (256, "/**/*a*a*b{}", "a", 8_000),
    (1, "/**/a*a*a*b/**/c", "/aaaaaaaaaaaaaaaa", 20_000),
];

#[test]
fn a_path_of_too_many_steps_is_on_no_list() {
    for (count, pattern, part, times) in EXPENSIVE {
        let patterns = (0..count).map(|number| pattern.replace("{}", &number.to_string()));
        let mut patterns: Vec<_> = patterns.collect();
        // Otherwise a public one.
        patterns.push("/**".to_owned());
        let list = PassList::parse(patterns.iter().map(String::as_str)).unwrap();
        let path = |times: usize| format!("/{}", part.repeat(times).trim_start_matches('/'));
        assert!(!list.matches(&path(times)), "{pattern}");
        assert_eq!(
            list.each_match(&path(times), |_| ()),
            Err(TooManySteps),
            "{pattern}"
        );
        let loosely = list.each_loose_match(&path(times), false, |_| ());
        assert_eq!(loosely, Err(TooManySteps), "{pattern}");
        // As deep as those of honest clients.
        assert!(list.matches(&path(24)), "{pattern}");
        assert_eq!(
            list.each_loose_match(&path(24), false, |_| ()),
            Ok(()),
            "{pattern}"
        );
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

/// The meaning of one pattern is Spring's: `contract_4_4_the_pass_list_means_what_spring_means`.
#[test]
fn one_pattern_or_many_the_meaning_is_the_same() {
    let patterns = sequences(&["a", "b", "*", "?", "a*", "**"], 3);
    let paths = sequences(&["a", "b", "ab", "c"], 4);
    let text = |segments: &Vec<&str>| format!("/{}", segments.join("/"));
    let texts: Vec<_> = patterns.iter().map(text).collect();
    let all = PassList::parse(texts.iter().map(String::as_str)).unwrap();
    let alone = |text: &String| PassList::parse([text.as_str()]).unwrap();
    let each: Vec<_> = texts.iter().map(alone).collect();
    let paths = paths.iter().map(text);
    for path in paths.flat_map(|path| [format!("{path}/"), path]) {
        let first = each.iter().position(|alone| alone.matches(&path));
        let first = first.map(|position| texts[position].as_str());
        let found = all.find_for(None, &path).map(PathPattern::as_str);
        assert_eq!(found, first, "{path}");
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
