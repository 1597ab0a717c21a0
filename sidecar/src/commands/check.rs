//! `sidecar check`: the effective configuration, and a trial of it with literal attacks.
//!
//! The attacks run through the rules that `serve` would use. The expected outcome of each is
//! derived from the settings, never from the rules.

use runtime::process::clock::unix_now;
use runtime::process::exit::{self, ExitError};
use runtime::process::output;

use self::attacks::Attacks;
use self::online::Findings;
use crate::cli::{CheckArgs, ServeArgs};
use crate::config::Config;
use crate::config::issuers::IssuerConfig;
use crate::keys::source::KeySource;

mod attacks;
mod online;
mod paths;
mod rules;
mod token_headers;
mod tokens;

/// Runs the command. Former names are reported, and accepted with `--strict`.
///
/// # Errors
/// For an unusable configuration, or one that accepts an attack.
pub(crate) fn run(
    args: &CheckArgs,
    unknown_variables: Vec<String>,
    former_names: &[String],
) -> Result<(), ExitError> {
    let settings = &args.settings;
    let config = Config::new(settings)?;
    config.reject_ended_reporting(unix_now())?;
    let report = attack(settings, &config)?;
    // Certificates and key files are part of the configuration.
    let (mut sources, unusable) = open_sources(&config)?;
    let found = match args.online {
        true => online::run_checks(&config, &mut sources)?,
        false => Findings::default(),
    };
    let warnings: Vec<String> = unknown_variables
        .into_iter()
        .chain(config.warnings_at_the_start())
        .chain(unusable)
        .chain(sources.iter().filter_map(|(_, source)| source.warning()))
        .chain(found.warnings.iter().cloned())
        .collect();
    let reported = former_names.iter().chain(&warnings);
    let (toml, notes) = (as_toml(settings, reported)?, notes(settings));
    output::print(&format!("{toml}{notes}{report}{found}"))?;
    report.verdict()?;
    found.verdict()?;
    match args.strict {
        true => exit::strictly(&warnings),
        false => Ok(()),
    }
}

/// Opens the source of each issuer. One that cannot be opened stops the start if it is the only
/// one, and is a warning among several.
fn open_sources(config: &Config) -> Result<(Vec<Source<'_>>, Vec<String>), ExitError> {
    let (mut sources, mut unusable) = (Vec::new(), Vec::new());
    for issuer in config.issuers() {
        match (KeySource::new(issuer.source.clone()), &issuer.name) {
            (Ok(source), _) => sources.push((issuer, source)),
            (Err(failure), None) => return Err(failure),
            (Err(failure), Some(name)) => unusable.push(format!("[[issuer]] {name}: {failure}")),
        }
    }
    Ok((sources, unusable))
}

/// An issuer and its open source.
type Source<'c> = (&'c IssuerConfig, KeySource);

/// Renders the configuration as a file, with warnings as comments.
fn as_toml<'w>(
    args: &ServeArgs,
    warnings: impl Iterator<Item = &'w String>,
) -> Result<String, ExitError> {
    let warnings: String = warnings
        .map(|warning| format!("# warning: {warning}\n"))
        .collect();
    Ok(warnings + &args.to_toml()?)
}

/// Names the patterns of public paths that have no methods in front.
fn notes(args: &ServeArgs) -> String {
    let mut patterns = args.rules.public_paths();
    patterns.retain(|pattern| pattern.starts_with('/'));
    match patterns.as_slice() {
        [] => String::new(),
        patterns => format!("# open to every method: {}\n", patterns.join(", ")),
    }
}

fn attack(args: &ServeArgs, config: &Config) -> Result<Report, ExitError> {
    let attacks = Attacks::load()?;
    let tokens = tokens::attack(args, config, &attacks)?;
    let paths = paths::attack(&args.rules, &config.rules.auth_policy, &attacks.path)?;
    let rules = rules::attack(&args.rules, &config.rules.auth_policy, &attacks)?;
    Ok(Report {
        tokens,
        paths,
        rules,
    })
}

/// The results of one kind of attack.
#[derive(Debug, Default)]
struct Outcome {
    rejected: usize,
    accepted: usize,
    /// One line for each attack with an unexpected result.
    surprises: Vec<String>,
}

impl Outcome {
    fn count(&mut self, is_rejected: bool) {
        if is_rejected {
            self.rejected += 1;
        } else {
            self.accepted += 1;
        }
    }
}

#[derive(Debug)]
struct Report {
    tokens: Outcome,
    paths: Outcome,
    rules: Outcome,
}

impl Report {
    fn surprises(&self) -> impl Iterator<Item = &String> {
        let each = [&self.tokens, &self.paths, &self.rules].into_iter();
        each.flat_map(|outcome| &outcome.surprises)
    }

    fn verdict(&self) -> Result<(), ExitError> {
        let Some(first) = self.surprises().next() else {
            return Ok(());
        };
        let more = match self.surprises().count() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Err(ExitError::Config(format!(
            "attack not rejected: {first}{more}"
        )))
    }
}

/// Renders comments of the printed configuration.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for surprise in self.surprises() {
            writeln!(f, "# attack not rejected: {surprise}")?;
        }
        writeln!(
            f,
            "# attacks: {} tokens and {} paths rejected as expected; {} good tokens accepted",
            self.tokens.rejected, self.paths.rejected, self.tokens.accepted
        )?;
        match self.rules.rejected {
            0 => Ok(()),
            rejected => writeln!(
                f,
                "# rules: {rejected} requests with a token that lacks their claims rejected as expected"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use token_corpus::token_forge::Forge;
    use token_corpus::token_rows::{self, Setting, TokenTable};
    use wire::http::path_patterns::PassList;

    use super::attacks::TokenRow;
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
        match runtime::command_line::parse_words::<Cli>(line)
            .unwrap()
            .command
        {
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
        let tokens = report.tokens.rejected;
        assert!(
            tokens > 30 && report.tokens.accepted > 2 && report.paths.rejected > 30,
            "{flags:?}\n{report}"
        );
    }

    #[test]
    fn attacks_are_rejected_for_every_key_source() {
        for source in SOURCES {
            withstands(source, &[]);
        }
    }

    #[test]
    fn attacks_are_rejected_under_every_rule() {
        for flags in [
            &[
                "--app-name",
                "orders",
                "--public-path",
                "/static/**,/open/*.html,/a/?,/health,/",
            ][..],
            &[
                "--public-path",
                "/**/*.js,/*/public/**",
                "--optional-auth-path",
                "/feed/**,/b",
            ],
            &["--public-path", "/**", "--leeway", "0", "--allow-no-exp"],
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
            // ECDSA: the fastest signatures.
            withstands(SOURCES[1], flags);
        }
    }

    /// Returns the report on rules that differ from the settings.
    fn report_on(change: impl Fn(&mut AuthPolicy)) -> Report {
        let flags = [
            "--public-path",
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
    fn a_missing_rule_is_reported_by_the_row_s_name() {
        type Change = fn(&mut AuthPolicy);
        assert_eq!(report_on(|_| {}).verdict(), Ok(()));
        let rows: [(Change, &str); 5] = [
            (|rules| rules.policy.require_expiry = false, "no exp"),
            (
                |rules| rules.policy.leeway_seconds = 31,
                "exp at the edge of the leeway",
            ),
            (|rules| rules.policy.issuer = None, "issuer"),
            (|rules| rules.policy.audiences.clear(), "audience"),
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
                report.to_string().contains(&format!("not rejected: {row}")),
                "{row}\n{report}"
            );
        }
    }

    /// Rows of the corpus that no configuration accepts; each key gets those for its algorithm.
    const TOKENS: [&str; 22] = [
        "alg none without a signature",
        "alg none with a good signature",
        "alg None in another case",
        "alg NONE in capitals",
        "no alg",
        "HS256 keyed with the public key's PEM",
        "HS256 keyed with the public key's DER",
        "the key's alg named, but signed by HMAC with the public PEM",
        "hmac mode: an empty secret",
        "HS512 by the right secret",
        "PS256 by the right key, which is for another",
        "crit with an unknown extension",
        "b64 alone",
        "jku with a good signature",
        "jwk brings the forger's key along",
        "two alg members, the good one last",
        "signed by another key of the same type",
        "no signature",
        "one bit of the signature flipped",
        "the signature of another payload",
        "a signature of zeroes",
        "two exp claims",
    ];

    #[derive(serde::Serialize)]
    struct Made {
        key: Vec<MadeKey>,
    }

    #[derive(serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    struct MadeKey {
        signing_type: String,
        key: String,
        good: String,
        without_exp: String,
        rejected: Vec<TokenRow>,
    }

    /// Returns keys and tokens of a new forge, whose private keys are dropped.
    fn made(issued: i64) -> Made {
        let rows = TokenTable::load().unwrap().token;
        let key = token_corpus::keys::SigningType::ALL.map(|signing_type| {
            let forge = Forge::new(signing_type);
            let setting = Setting {
                issuer: "https://issuer.invalid/".to_owned(),
                ..Setting::of_defaults("kid", issued)
            };
            let token = |row: &token_rows::TokenRow| {
                let line = row.attack(&forge, &setting).lines.concat();
                let line = String::from_utf8(line).unwrap();
                line.strip_prefix("Authorization: Bearer ")
                    .unwrap()
                    .to_owned()
            };
            let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
            let tried = TOKENS.iter().map(|name| row(name));
            let tried = tried.filter(|row| row.is_tried_with(signing_type));
            MadeKey {
                signing_type: signing_type.name().to_owned(),
                key: forge.trusted().served(),
                good: token(row("a plain token")),
                without_exp: token(row("no exp")),
                rejected: tried
                    .map(|row| TokenRow {
                        name: row.name.clone(),
                        reason: row.rejection().unwrap().1.to_owned(),
                        token: token(row),
                    })
                    .collect(),
            }
        });
        Made { key: key.into() }
    }

    #[test]
    fn attack_tokens_are_those_of_the_corpus() {
        let file = Attacks::load().unwrap();
        let made = made(file.issued);
        if std::env::var_os("POSTERN_UPDATE_ATTACKS").is_some() {
            const LINE: &str = "# ---- keys ----\n";
            let path = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/commands/check/attacks.toml"
            );
            let text = std::fs::read_to_string(path).unwrap();
            let (before, _) = text.split_once(LINE).unwrap();
            let keys = toml::to_string_pretty(&made).unwrap();
            std::fs::write(path, format!("{before}{LINE}{keys}")).unwrap();
            return;
        }
        let names = |rows: &[TokenRow]| -> Vec<(String, String)> {
            let pair = |row: &TokenRow| (row.name.clone(), row.reason.clone());
            rows.iter().map(pair).collect()
        };
        assert_eq!(file.key.len(), made.key.len());
        for (read, made) in file.key.iter().zip(&made.key) {
            assert_eq!(read.signing_type, made.signing_type);
            assert_eq!(names(&read.rejected), names(&made.rejected));
        }
    }
}
