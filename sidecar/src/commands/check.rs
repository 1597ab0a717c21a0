//! `sidecar check`: the configuration that would be in effect, and what it withstands.
//!
//! The attacks are put before the very rules that `serve` would judge by, with keys made for the purpose;
//! what should become of each is worked out from the settings, not asked of the rules.

use std::time::SystemTime;

use runtime::clock::unix_seconds;
use runtime::exit::{self, Failure};
use runtime::output;
use toml::Table;

use self::online::Findings;
use crate::cli::{CheckArgs, ServeArgs};
use crate::config::Config;
use crate::keys::source::KeySource;

mod judge;
mod online;
mod paths;
mod tokens;

/// The command.
///
/// # Errors
/// When the configuration cannot be used, or lets an attack through.
pub(crate) fn run(args: &CheckArgs, unknown_variables: Vec<String>) -> Result<(), Failure> {
    let settings = &args.settings;
    let config = Config::new(settings)?;
    let report = attack(settings, &config)?;
    // Certificates and files of keys are part of the configuration.
    let mut source = KeySource::new(config.key_source.clone())?;
    let found = match args.online {
        true => online::look(&config, &mut source)?,
        false => Findings::default(),
    };
    let warnings: Vec<String> = unknown_variables
        .into_iter()
        .chain(config.warnings_at_the_start())
        .chain(source.second_thought())
        .chain(found.warnings.iter().cloned())
        .collect();
    output::print(&format!("{}{report}{found}", shown(settings, &warnings)?))?;
    report.verdict()?;
    found.verdict()?;
    match args.strict {
        true => exit::strictly(&warnings),
        false => Ok(()),
    }
}

/// The configuration as a file, with comments about it.
fn shown(args: &ServeArgs, warnings: &[String]) -> Result<String, Failure> {
    let settings = Table::try_from(args).map_err(|error| {
        Failure::Software(format!("the configuration cannot be shown: {error}"))
    })?;
    let warnings = warnings.iter();
    let warnings: String = warnings
        .map(|warning| format!("# warning: {warning}\n"))
        .collect();
    // The file may not hold the secret itself: what is printed is to be a usable one.
    let secret = args
        .keys
        .app_secret
        .as_ref()
        .map(|_| "# app-secret is set\n");
    Ok(format!(
        "{warnings}{settings}{}",
        secret.unwrap_or_default()
    ))
}

fn attack(args: &ServeArgs, config: &Config) -> Result<Report, Failure> {
    let tokens = tokens::attack(args, config, unix_seconds(SystemTime::now()))?;
    let paths = paths::attack(&args.rules, &config.rules.auth_policy)?;
    Ok(Report { tokens, paths })
}

/// What became of one kind of attack.
#[derive(Debug, Default)]
struct Outcome {
    refused: usize,
    accepted: usize,
    /// One line for each that did not end as it should.
    surprises: Vec<String>,
}

impl Outcome {
    fn count(&mut self, was_refused: bool) {
        if was_refused {
            self.refused += 1;
        } else {
            self.accepted += 1;
        }
    }
}

#[derive(Debug)]
struct Report {
    tokens: Outcome,
    paths: Outcome,
}

impl Report {
    fn surprises(&self) -> impl Iterator<Item = &String> {
        self.tokens.surprises.iter().chain(&self.paths.surprises)
    }

    fn verdict(&self) -> Result<(), Failure> {
        let Some(first) = self.surprises().next() else {
            return Ok(());
        };
        let more = match self.surprises().count() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Err(Failure::Config(format!(
            "attack not refused: {first}{more}"
        )))
    }
}

/// Comments of the configuration that is printed.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for surprise in self.surprises() {
            writeln!(f, "# attack not refused: {surprise}")?;
        }
        writeln!(
            f,
            "# attacks: {} tokens and {} paths refused as expected; {} good tokens accepted",
            self.tokens.refused, self.paths.refused, self.tokens.accepted
        )
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use clap::Parser;
    use contract::http::path_patterns::PassList;

    use super::*;
    use crate::auth::authorize::AuthPolicy;
    use crate::cli::{Cli, Command};

    const SOURCES: [&[&str]; 5] = [
        &[
            "--auth-server",
            "http://127.0.0.1/auth",
            "--app-id",
            "a",
            "--app-secret",
            "b",
        ],
        &[
            "--auth-server",
            "http://127.0.0.1/auth",
            "--app-id",
            "a",
            "--app-secret",
            "b",
            "--signing-type",
            "ecdsa",
        ],
        &[
            "--auth-server",
            "http://127.0.0.1/auth",
            "--app-id",
            "a",
            "--app-secret",
            "b",
            "--signing-type",
            "hmac",
            "--trust-shared-secret",
        ],
        &[
            "--jwks-url",
            "https://idp/keys",
            "--issuer",
            "https://idp/",
            "--audience",
            "orders",
        ],
        &[
            "--jwks-url",
            "https://idp/keys",
            "--issuer",
            "i",
            "--audience",
            "a",
            "--algorithms",
            "ES256,RS256",
            "--claim",
            "id=/user/id,account=login",
        ],
    ];

    fn args(source: &[&str], flags: &[&str]) -> Box<ServeArgs> {
        let line = [&["sidecar", "check"], source, flags].concat();
        match Cli::try_parse_from(line).unwrap().command {
            Command::Check(args) => Box::new(args.settings),
            other => unreachable!("{other:?}"),
        }
    }

    fn report(args: &ServeArgs) -> Report {
        attack(args, &Config::new(args).unwrap()).unwrap()
    }

    fn withstands(source: &[&str], flags: &[&str]) {
        let report = report(&args(source, flags));
        assert_eq!(report.verdict(), Ok(()), "{source:?} {flags:?}\n{report}");
        let tokens = report.tokens.refused;
        assert!(
            tokens > 100 && report.paths.refused > 30,
            "{flags:?}\n{report}"
        );
    }

    #[test]
    fn no_source_of_keys_lets_an_attack_through() {
        for source in SOURCES {
            withstands(source, &[]);
        }
    }

    #[test]
    fn no_rule_lets_an_attack_through() {
        for flags in [
            &[
                "--app-name",
                "orders",
                "--pass",
                "/static/**,/open/*.html,/a/?,/health,/",
            ][..],
            &[
                "--pass",
                "/**/*.js,/*/public/**",
                "--optional",
                "/feed/**,/b",
            ],
            &["--pass", "/**", "--leeway", "0", "--allow-no-exp"],
            &[
                "--issuer",
                "I",
                "--audience",
                "\"a\"",
                "--max-user-header-bytes",
                "10",
            ],
            &["--audience", "orders,orders2,billing", "--issuer", "i"],
            &[
                "--token-cookie",
                "access_token",
                "--websocket-token",
                "--max-authorization-bytes",
                "700",
            ],
            &[
                "--token-cache-bytes",
                "0",
                "--max-authorization-bytes",
                "100000",
            ],
        ] {
            // The quickest signatures.
            withstands(SOURCES[1], flags);
        }
    }

    #[test]
    fn every_algorithm_that_is_allowed_is_attacked() {
        let refused = |algorithms: &str| {
            let report = report(&args(SOURCES[3], &["--algorithms", algorithms]));
            assert_eq!(report.verdict(), Ok(()), "{algorithms}");
            report.tokens.refused
        };
        let each = ["PS256", "RS512", "ES384", "EdDSA"].map(refused);
        assert!(each.iter().all(|refused| *refused > 100), "{each:?}");
        assert_eq!(
            refused("PS256,RS512,PS256,ES384,EdDSA,EdDSA"),
            each.iter().sum::<usize>()
        );
    }

    /// The report on rules that are not those of the settings.
    fn report_on(change: impl Fn(&mut AuthPolicy)) -> Report {
        let flags = [
            "--pass",
            "/static/**",
            "--issuer",
            "auth",
            "--audience",
            "orders",
        ];
        let args = args(SOURCES[1], &flags);
        let mut config = Config::new(&args).unwrap();
        change(&mut config.rules.auth_policy);
        attack(&args, &config).unwrap()
    }

    #[test]
    fn a_rule_that_is_missing_is_found_by_the_row_s_name() {
        type Change = fn(&mut AuthPolicy);
        assert_eq!(report_on(|_| {}).verdict(), Ok(()));
        let rows: [(Change, &str); 5] = [
            (|rules| rules.policy.require_expiry = false, "no exp"),
            (
                |rules| rules.policy.leeway_seconds = 31,
                "exp at the edge of the leeway",
            ),
            (
                |rules| rules.policy.issuer = None,
                "issuer asked for: absent",
            ),
            (
                |rules| rules.policy.audiences = vec!["orders".into(), "billing".into()],
                "audience asked for: another",
            ),
            (
                |rules| {
                    let open = PassList::parse(["/**"]).unwrap_or_default();
                    rules.interceptor = rules.interceptor.clone().with_optional(open);
                },
                "no Authorization field",
            ),
        ];
        for (change, row) in rows {
            let report = report_on(change);
            let failure = report.verdict().unwrap_err();
            assert_eq!(failure.code(), 78);
            assert!(
                report.to_string().contains(&format!("not refused: {row}")),
                "{row}\n{report}"
            );
        }
    }
}
