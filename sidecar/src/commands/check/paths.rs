//! Paths that are not open, dressed as ones that are; and open ones, spelt as no client should.
//!
//! Made from the patterns of the configuration: for each, ways in which one program or another would read a
//! path as the pattern's although it leads elsewhere. None may pass without a token.

use contract::http::path_patterns::PassList;
use contract::interceptor::USER_DETAILS_PATH;
use contract::rejection::Rejection;
use runtime::exit::Failure;

use super::Outcome;
use super::judge::Request;
use crate::auth::authorize::AuthPolicy;
use crate::cli::policy_args::RulesArgs;
use crate::config::example;

/// A path that nobody lists on purpose.
pub(super) const PROBE: &str = "/postern-probe";

/// How some program spells `..`.
const DOTS: [&str; 14] = [
    "..",
    "%2e%2e",
    "%2E.",
    ".%2e",
    "%252e%252e",
    "%25252e%25252e",
    "..;",
    "..;a=b",
    "..%3b",
    "..%00",
    "..%20",
    "%c0%ae%c0%ae",
    "%e0%80%ae%e0%80%ae",
    "%ef%bc%8e%ef%bc%8e",
];

/// How some program spells `/`.
const SLASHES: [&str; 8] = ["/", "//", ";/", "%2f", "%5c", "\\", "%252f", "%c0%af"];

/// Where some program believes that a path ends.
const ENDS: [&str; 10] = [
    "?", "#", ";", "%3f", "%23", "%3b", "%00", "%0a", "%0d%0a", "%253f",
];

/// The paths of a configuration that need no token: those of `--pass`, and of `--optional` where none is sent.
#[derive(Debug)]
pub(super) struct OpenPaths {
    context: String,
    patterns: Vec<String>,
    list: PassList,
}

impl OpenPaths {
    pub(super) fn new(rules: &RulesArgs) -> Result<Self, Failure> {
        let patterns = [&rules.pass[..], &rules.optional].concat();
        let list = PassList::parse(patterns.iter().map(String::as_str))
            .map_err(|error| Failure::Config(error.to_string()))?;
        let context = match rules.app_name.as_str() {
            "" => String::new(),
            name => format!("/{name}"),
        };
        Ok(Self {
            context,
            patterns,
            list,
        })
    }

    /// Whether `path`, relative to the context path, is one of them.
    pub(super) fn holds(&self, path: &str) -> bool {
        path != USER_DETAILS_PATH && self.list.matches(path)
    }

    /// The path as it is requested.
    pub(super) fn full(&self, path: &str) -> String {
        format!("{}{path}", self.context)
    }

    /// What is to be reached without a token.
    fn protected(&self) -> impl Iterator<Item = &'static str> {
        let protected = |path: &&str| !self.holds(path);
        [USER_DETAILS_PATH, PROBE].into_iter().filter(protected)
    }

    fn attacks(&self) -> Vec<String> {
        let mut attacks = Vec::new();
        for pattern in &self.patterns {
            let open = example(pattern).replace(' ', "%20");
            for protected in self.protected() {
                attacks.extend(self.climbing(&open, protected));
                attacks.extend(self.hidden_ends(&open, protected));
            }
            attacks.extend(self.odd_spellings(&open));
            attacks.extend(self.near_misses(pattern));
        }
        // Without a pattern nothing is open, whatever it looks like.
        if self.patterns.is_empty() {
            for protected in self.protected() {
                attacks.extend(self.climbing("/static", protected));
                attacks.push(self.full(protected));
            }
        }
        attacks
    }

    /// Out of an open directory into one that is not, and the other way round.
    fn climbing(&self, open: &str, protected: &str) -> Vec<String> {
        let mut paths = Vec::new();
        let (open, protected) = (open.trim_end_matches('/'), protected);
        for dots in DOTS {
            for slash in SLASHES {
                let up = format!("{slash}{dots}").repeat(open.matches('/').count().max(1));
                let target = protected.replacen('/', slash, 1);
                paths.push(self.full(&format!("{open}{up}{target}")));
            }
            let up = format!("/{dots}").repeat(protected.matches('/').count());
            paths.push(self.full(&format!("{protected}{up}{open}")));
        }
        paths
    }

    /// A protected path, and behind what some take for its end, an open one.
    fn hidden_ends(&self, open: &str, protected: &str) -> Vec<String> {
        let last = open.rsplit('/').next().unwrap_or_default();
        ENDS.iter()
            .flat_map(|end| {
                [
                    format!("{protected}{end}{open}"),
                    format!("{protected}{end}{last}"),
                ]
            })
            .map(|path| self.full(&path))
            .collect()
    }

    /// An open path in spellings that not every program reads as the same one.
    fn odd_spellings(&self, open: &str) -> Vec<String> {
        let full = self.full(open);
        let Some(rest) = full.strip_prefix('/') else {
            return Vec::new();
        };
        let mut paths = vec![
            format!("//{rest}"),
            format!("/./{rest}"),
            format!("/%2e/{rest}"),
            format!("/x/../{rest}"),
            format!("/;/{rest}"),
            format!("/%2f{rest}"),
            format!("\\{rest}"),
            format!("{full};a=b"),
            format!("{full}%00"),
            format!("{full}\\"),
        ];
        let first = rest.chars().next().filter(char::is_ascii_alphanumeric);
        paths.extend(first.map(|first| {
            let escaped = format!("/%{:02x}", u32::from(first));
            full.replacen(&format!("/{first}"), &escaped, 1)
        }));
        paths
    }

    /// Other names than the one that a pattern without wildcards lists, but for some program the same.
    fn near_misses(&self, pattern: &str) -> Vec<String> {
        if pattern.contains(['*', '?', ' ', '%']) || !pattern.is_ascii() {
            return Vec::new();
        }
        let swapped = |c: char| {
            if c.is_ascii_lowercase() {
                c.to_ascii_uppercase()
            } else {
                c.to_ascii_lowercase()
            }
        };
        let cases: String = pattern.chars().map(swapped).collect();
        let slash = match pattern.strip_suffix('/') {
            Some(without) => without.to_owned(),
            None => format!("{pattern}/"),
        };
        let near = [cases, slash, format!("{pattern}."), format!("{pattern}%20")];
        let others = near.into_iter().filter(|near| {
            let decoded = near.replace("%20", " ");
            near.starts_with('/') && near != pattern && !self.holds(&decoded)
        });
        others.map(|near| self.full(&near)).collect()
    }
}

/// Puts every path before the rules, without a token.
pub(super) fn attack(settings: &RulesArgs, rules: &AuthPolicy) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    for target in OpenPaths::new(settings)?.attacks() {
        let request = Request {
            target: &target,
            lines: &[],
        };
        match request.judged(rules, Err(Rejection::AuthKeysUnavailable), 0) {
            Err(_) => outcome.refused += 1,
            Ok(_) => outcome.surprises.push(format!(
                "{}: passes without a token",
                target.escape_default()
            )),
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn attacks(pass: &str) -> Vec<String> {
        let line = [
            "sidecar",
            "check",
            "--public-key-file",
            "file",
            "--issuer",
            "i",
            "--audience",
            "a",
            "--app-name",
            "orders",
            "--pass",
            pass,
        ];
        match Cli::try_parse_from(line).unwrap().command {
            Command::Check(args) => OpenPaths::new(&args.settings.rules).unwrap().attacks(),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn the_known_disguises_are_among_the_attacks() {
        let attacks = attacks("/static/**,/health");
        for path in [
            "/orders/static/x/../../postern-probe",
            "/orders/static/x%2f%2e%2e%2f%2e%2e%2fpostern-probe",
            "/orders/static/x/..;/..;/current/user/details",
            "/orders/static/x\\..\\..\\postern-probe",
            "/orders/postern-probe;/static/x",
            "/orders/postern-probe%23x",
            "/orders/current/user/details?/static/x",
            "//orders/static/x",
            "/%6frders/static/x",
            "/orders/HEALTH",
            "/orders/health/",
            "/orders/health.",
        ] {
            assert!(attacks.iter().any(|attack| attack == path), "{path}");
        }
    }

    #[test]
    fn what_the_list_means_to_open_is_no_attack() {
        let attacks = attacks("/health,/health/,/Health,/**");
        for path in ["/orders/health/", "/orders/HEALTH", "/orders/postern-probe"] {
            assert!(attacks.iter().all(|attack| attack != path), "{path}");
        }
    }
}
