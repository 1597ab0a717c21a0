//! The pass list against Spring's own algorithm: every small pattern with every small path.
//!
//! One difference is intended. Spring ignores the slash behind a final `*` or `**` in part, so that
//! `/a/**/` matches `/a`; here a slash at the end of a pattern requires one, and so passes less.
//!
//! `spring_matches` follows `AntPathMatcher.doMatch` of Spring Framework 6 step by step, for paths
//! that start with a slash and have no empty segment (others are never pass-listed).

use postern_http::path::patterns::PassList;
use tests::tables::Verdicts;

const PATTERN_SEGMENTS: [&str; 7] = ["a", "b", "*", "**", "?", "a*", "*b"];
const PATH_SEGMENTS: [&str; 4] = ["a", "b", "ab", "c"];
const MAX_SEGMENTS: usize = 3;

/// Returns `/`, and every path of up to three of these segments, with and without a final slash.
fn paths_of(segments: &[&str]) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut longest = all.clone();
    for _ in 0..MAX_SEGMENTS {
        longest = longest
            .iter()
            .flat_map(|path| {
                segments
                    .iter()
                    .map(move |segment| format!("{path}/{segment}"))
            })
            .collect();
        all.extend(longest.iter().cloned());
    }
    let with_slash: Vec<String> = all.iter().map(|path| format!("{path}/")).collect();
    all.into_iter()
        .chain(with_slash)
        .filter(|path| !path.is_empty())
        .collect()
}

#[test]
fn contract_4_4_the_pass_list_means_what_spring_means() {
    let paths = paths_of(&PATH_SEGMENTS);
    let mut verdicts = Verdicts::default();
    for pattern in paths_of(&PATTERN_SEGMENTS) {
        let pass_list = PassList::parse([pattern.as_str()]).unwrap();
        for path in &paths {
            let (ours, springs) = (pass_list.matches(path), spring_matches(&pattern, path));
            let alike = ours == springs || (!ours && requires_a_slash(&pattern));
            let difference = (!alike).then(|| format!("ours says {ours}, Spring {springs}"));
            verdicts.row(&format!("{pattern} on {path}"), difference);
        }
    }
    assert!(verdicts.checked() > 100_000);
    verdicts.conclude();
}

fn requires_a_slash(pattern: &str) -> bool {
    pattern.ends_with("/*/") || pattern.ends_with("/**/")
}

fn spring_matches(pattern: &str, path: &str) -> bool {
    let patterns: Vec<&str> = pattern
        .split('/')
        .filter(|segment| !segment.is_empty())
        .collect();
    let segments: Vec<&str> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .collect();
    let slashes_agree = pattern.ends_with('/') == path.ends_with('/');

    let fits = |(pattern, segment): (&&str, &&str)| **pattern != *"**" && glob(pattern, segment);
    let head = patterns
        .iter()
        .zip(&segments)
        .take_while(|pair| fits((pair.0, pair.1)))
        .count();
    let (patterns, segments) = (&patterns[head..], &segments[head..]);
    match (patterns, segments) {
        ([], []) => return slashes_agree,
        (["*"], []) if path.ends_with('/') => return true,
        (rest, []) => return rest.iter().all(|pattern| *pattern == "**"),
        (["**", ..], _) => {}
        _ => return false,
    }

    let tail = patterns
        .iter()
        .rev()
        .zip(segments.iter().rev())
        .take_while(|pair| fits((pair.0, pair.1)))
        .count();
    if tail > 0 && !slashes_agree {
        return false;
    }
    let (patterns, segments) = (
        &patterns[..patterns.len() - tail],
        &segments[..segments.len() - tail],
    );
    match (patterns, segments) {
        (rest, []) => rest.iter().all(|pattern| *pattern == "**"),
        ([.., "**"], _) => spring_middle(patterns, segments),
        _ => false,
    }
}

/// Matches from the first `**` to the last: each run of other segments at its first fitting place.
fn spring_middle(patterns: &[&str], mut segments: &[&str]) -> bool {
    for run in patterns
        .split(|pattern| *pattern == "**")
        .filter(|run| !run.is_empty())
    {
        let fits = |window: &[&str]| {
            run.iter()
                .zip(window)
                .all(|(pattern, segment)| glob(pattern, segment))
        };
        let Some(at) = segments.windows(run.len()).position(fits) else {
            return false;
        };
        segments = &segments[at + run.len()..];
    }
    true
}

/// Matches one segment: `AntPathStringMatcher`, which is a regular expression in Spring.
fn glob(pattern: &str, segment: &str) -> bool {
    match (pattern.chars().next(), segment.chars().next()) {
        (None, None) => true,
        (Some('*'), _) => {
            glob(&pattern[1..], segment) || (!segment.is_empty() && glob(pattern, &segment[1..]))
        }
        (Some('?'), Some(_)) => glob(&pattern[1..], &segment[1..]),
        (Some(one), Some(other)) if one == other => glob(&pattern[1..], &segment[1..]),
        _ => false,
    }
}
