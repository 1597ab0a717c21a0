//! Protected paths that are disguised as public ones, and public ones in odd spellings.
//!
//! Each pattern of the configuration yields paths that some program reads as public although they
//! lead elsewhere. None may pass without a token.

use runtime::process::exit::ExitError;
use wire::http::path_patterns::PassList;
use wire::interceptor::USER_DETAILS_PATH;
use wire::rejection::Rejection;

use super::Outcome;
use super::attacks::{PathParts, authorize};
use crate::auth::authorize::AuthPolicy;
use crate::cli::policy_args::RulesArgs;
use crate::config::{example, path_of};

/// A path that no pattern lists on purpose.
const PROBE: &str = "/postern-probe";

/// The paths of `--public-path` and `--optional-auth-path`: requests without a token reach them.
#[derive(Debug)]
pub(super) struct PublicPaths<'p> {
    parts: &'p PathParts,
    context: String,
    patterns: Vec<String>,
    list: PassList,
}

impl<'p> PublicPaths<'p> {
    pub(super) fn new(rules: &RulesArgs, parts: &'p PathParts) -> Result<Self, ExitError> {
        let patterns = [rules.public_paths(), rules.optional_auth_paths()].concat();
        let list = PassList::with_methods(patterns.iter().map(String::as_str))
            .map_err(|error| ExitError::Config(error.to_string()))?;
        let context = match rules.app_name.as_str() {
            "" => String::new(),
            name => format!("/{name}"),
        };
        Ok(Self {
            parts,
            context,
            patterns,
            list,
        })
    }

    /// Matches `path`, relative to the context path, against the patterns.
    pub(super) fn holds(&self, path: &str) -> bool {
        path != USER_DETAILS_PATH && self.list.matches(path)
    }

    /// Puts the context path before `path`.
    pub(super) fn full(&self, path: &str) -> String {
        format!("{}{path}", self.context)
    }

    /// The paths that need a token: user details always, the probe unless a pattern lists it.
    pub(super) fn protected(&self) -> impl Iterator<Item = &'static str> {
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
            attacks.extend(self.spellings(&open));
            attacks.extend(self.near_misses(pattern));
        }
        // Without a pattern no path is public.
        if self.patterns.is_empty() {
            for protected in self.protected() {
                attacks.extend(self.climbing("/static", protected));
                attacks.push(self.full(protected));
            }
        }
        attacks
    }

    /// Climbs out of an open directory into a protected one, and the other way round.
    fn climbing(&self, open: &str, protected: &str) -> Vec<String> {
        let mut paths = Vec::new();
        let open = open.trim_end_matches('/');
        for dots in &self.parts.dots {
            for slash in &self.parts.slashes {
                let up = format!("{slash}{dots}").repeat(open.matches('/').count().max(1));
                let target = protected.replacen('/', slash, 1);
                paths.push(self.full(&format!("{open}{up}{target}")));
            }
            let up = format!("/{dots}").repeat(protected.matches('/').count());
            paths.push(self.full(&format!("{protected}{up}{open}")));
        }
        paths
    }

    /// Appends a public path to a protected one, behind a character that some program ends a path
    /// at.
    fn hidden_ends(&self, open: &str, protected: &str) -> Vec<String> {
        let last = open.rsplit('/').next().unwrap_or_default();
        let ends = self.parts.ends.iter();
        ends.flat_map(|end| [open, last].map(|tail| self.full(&format!("{protected}{end}{tail}"))))
            .collect()
    }

    /// Spells a public path so that not every program reads it as the same path.
    pub(super) fn spellings(&self, open: &str) -> Vec<String> {
        let full = self.full(open);
        let Some(rest) = full.strip_prefix('/') else {
            return Vec::new();
        };
        let spellings = self.parts.spellings.iter();
        let mut paths: Vec<_> = spellings.map(|odd| odd.replace("{rest}", rest)).collect();
        let first = rest.chars().next().filter(char::is_ascii_alphanumeric);
        paths.extend(first.map(|first| format!("/%{:02x}{}", u32::from(first), &rest[1..])));
        paths
    }

    /// Varies the path of a pattern without wildcards into names that some program takes for the
    /// same.
    pub(super) fn near_misses(&self, pattern: &str) -> Vec<String> {
        let pattern = path_of(pattern);
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

/// Requests every path without a token.
pub(super) fn attack(
    settings: &RulesArgs,
    rules: &AuthPolicy,
    parts: &PathParts,
) -> Result<Outcome, ExitError> {
    let mut outcome = Outcome::default();
    for target in PublicPaths::new(settings, parts)?.attacks() {
        match authorize(rules, &target, &[], Err(Rejection::AuthKeysUnavailable), 0) {
            Err(_) => outcome.count(true),
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

    use super::super::attacks::Attacks;
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
            "--public-path",
            pass,
        ];
        match runtime::command_line::parse_words::<Cli>(line)
            .unwrap()
            .command
        {
            Command::Check(args) => {
                let parts = Attacks::load().unwrap().path;
                let open = PublicPaths::new(&args.settings.rules, &parts).unwrap();
                open.attacks()
            }
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn known_disguises_are_among_the_attacks() {
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
    fn paths_that_a_pattern_lists_are_no_attack() {
        let attacks = attacks("/health,/health/,/Health,/**");
        for path in ["/orders/health/", "/orders/HEALTH", "/orders/postern-probe"] {
            assert!(attacks.iter().all(|attack| attack != path), "{path}");
        }
    }
}
