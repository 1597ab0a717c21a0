//! `check`: prints the effective configuration as a file, without secrets. The store is read, not changed.

use postern_process::exit::{self, ExitError};

use super::print;
use crate::cli::CheckArgs;
use crate::config::{Config, warnings};
use crate::server::synchronization::preview::preview;
use crate::store::StoreError;
use crate::store::directory::Access;

/// Runs the command. Overridden keys of the file are reported, and accepted with `--strict`.
///
/// # Errors
/// For an unusable configuration or store.
pub(crate) async fn run(
    args: &CheckArgs,
    unknown_variables: Vec<String>,
    overridden: &[String],
) -> Result<(), ExitError> {
    let config = Config::from_args(&args.settings)?;
    let away = check_store(&config).await?;
    let settings = config.printable(&args.settings)?;
    let mut all = unknown_variables;
    all.extend(warnings(&args.settings, &config));
    all.extend(away);
    let comments: String = overridden
        .iter()
        .chain(&all)
        .map(|warning| format!("# warning: {warning}\n"))
        .collect();
    print((comments + &settings.to_string()).trim_end())?;
    exit::end_check(args.strict, &all, overridden.len())
}

/// Returns a warning about an unavailable store, which does not prevent a start.
async fn check_store(config: &Config) -> Result<Option<String>, ExitError> {
    config.store.check_access()?;
    let store = config.store.open(Access::Preview)?;
    match preview(&store, config).await {
        Ok(()) => Ok(None),
        Err(StoreError::Unavailable(cause)) => Ok(Some(format!(
            "--store: {cause}; a server waits for it, and responds to login and key with 503"
        ))),
        Err(unusable) => Err(unusable.into()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use ::tests::wire::certificates::{Authority, write_private};

    use toml::Table;

    use super::*;
    use crate::cli::{Cli, Command};

    fn effective_of(flags: &[&str]) -> Table {
        let cli = postern_process::command_line::parse_words::<Cli>(
            ["auth-server", "check"].iter().chain(flags),
        )
        .unwrap();
        let Command::Check(args) = cli.command else {
            unreachable!("the command is check")
        };
        let settings = &args.settings;
        let config = Config::from_args(settings).unwrap();
        config.printable(settings).unwrap()
    }

    /// A secret has no key in a file.
    const SECRET: &str = "key-encryption-key";

    /// Returns a value for every flag, with files for those that name one.
    fn everything(authority: &Authority) -> Vec<String> {
        let directory = authority.file().parent().unwrap().to_owned();
        let file = |name: &str, text: &str| {
            let path = directory.join(name);
            write_private(&path, text);
            path.display().to_string()
        };
        std::fs::create_dir(directory.join("static")).unwrap();
        let kek: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
        let certificate = authority.issue("certificate");
        let [cert, key] =
            [certificate.cert, certificate.key].map(|path| path.display().to_string());
        [
            ("--tls-cert", cert.clone()),
            ("--tls-key", key.clone()),
            (
                "--store",
                "rediss+sentinel://me:hush@store:1/master".to_owned(),
            ),
            ("--store-password-file", file("store", "hush")),
            ("--store-ca", authority.file().display().to_string()),
            ("--store-client-cert", cert),
            ("--store-client-key", key),
            ("--store-sentinel-user", "sentinel".to_owned()),
            ("--store-sentinel-password-file", file("sentinel", "hush")),
            ("--key-encryption-key-file", file("kek", &kek)),
            ("--client-cert", "optional".to_owned()),
            ("--static-dir", directory.display().to_string()),
            (
                "--applications-dir",
                directory.join("static").display().to_string(),
            ),
            (
                "--registry",
                format!(
                    "nacos://me@nacos/ns?group=G&password-file={}",
                    file("registry", "hush")
                ),
            ),
            ("--advertise", "auth:9000".to_owned()),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
    }

    #[test]
    fn every_flag_of_serve_is_printed_and_no_secret() {
        let authority = Authority::new();
        let flags = everything(&authority);
        let effective = effective_of(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        let command = postern_process::command_line::command::<Cli>();
        let serve = command.find_subcommand("serve").unwrap();
        let settings = serve.get_arguments().filter_map(|flag| flag.get_long());
        for flag in settings {
            let expected = flag != SECRET;
            assert_eq!(effective.contains_key(flag), expected, "--{flag}");
        }
        let text = effective.to_string();
        assert!(
            !text.contains("hush") && !text.contains("0001020304"),
            "{text}"
        );
    }

    #[test]
    fn values_are_printed_as_the_flags_take_them() {
        let effective = effective_of(&[
            "--public-path=/a/**,/b",
            "--rotate-every=86400",
            "--trusted-proxy=10.0.0.0/8",
            "--cors-origin=https://app.example",
            "--users=builtin",
            "--signing-type=ecdsa",
            "--access-log=all",
            "--log-format=json",
            "--context-path=",
        ]);
        let text = effective.to_string();
        for line in [
            r#"public-path = ["/a/**", "/b"]"#,
            r#"rotate-every = "1d""#,
            r#"trusted-proxy = ["10.0.0.0/8"]"#,
            r#"cors-origin = ["https://app.example"]"#,
            r#"users = "builtin""#,
            r#"signing-type = "ecdsa""#,
            r#"access-log = "all""#,
            r#"log-format = "json""#,
            r#"context-path = """#,
            r#"store-poll-interval = "30s""#,
            "login-rate-limit = 0",
            "sessions-per-user = 0",
        ] {
            assert!(
                text.lines().any(|effective| effective == line),
                "{line}\n{text}"
            );
        }
    }
}
