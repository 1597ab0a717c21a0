//! Logs: one subscriber for `tracing` and `log`, written to standard error with RFC 3339 UTC times.
//!
//! Standard output stays free for the output of commands.

use std::io::IsTerminal;
use std::panic::PanicHookInfo;

use serde::Serialize;
use tracing::{Level, Metadata, Subscriber};
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::filter::{EnvFilter, FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::exit::{self, ExitError};
use crate::logs::log_lines;

const DEFAULT_LEVEL: &str = "info";

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line, for collectors.
    Json,
}

/// The log settings of both programs. Serialised, they are part of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args, Serialize)]
#[command(next_help_heading = "Logs")]
#[serde(rename_all = "kebab-case")]
pub struct LogArgs {
    /// Format of a log line, on standard error
    #[arg(long, env, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Lowest level of log lines: error, warn, info, debug, or a filter as of RUST_LOG
    #[arg(long, env, value_name = "FILTER", default_value = DEFAULT_LEVEL)]
    pub log_level: String,
}

/// Libraries whose debug lines print requests, headers or connection addresses as they are:
/// `Authorization`, the query that carries `appSecret`, the password in a store's address.
const CAPPED_AT_INFO: [&str; 7] = [
    "h2",
    "hyper",
    "hyper_util",
    "pingora",
    "redis",
    "reqwest",
    "rustls",
];

/// The beginnings of the targets of our own lines.
const OUR_TARGETS: [&str; 9] = [
    "auth_server",
    "postern_k8s",
    "registry",
    "postern_contract",
    "postern_http",
    "postern_process",
    "postern_token",
    "postern_transport",
    "sidecar",
];

/// Targets that warn about a client's bytes, as often as a client sends them: off unless a filter
/// names them. The programs count and log such rejections themselves.
const SILENT: &str = "h2=off,rustls=off,pingora_core::apps=off,\
                      pingora_core::protocols::http::v1=off,\
                      pingora_core::protocols::http::v2::server=off";

/// Installs the subscriber; the guard is kept until the program ends, and writes the last lines.
/// `directives` has the syntax of `RUST_LOG`: `info`, `warn,sidecar=debug`.
///
/// # Errors
/// [`ExitError::Config`] for directives that cannot be read, [`ExitError::Software`] when a subscriber
/// is already there.
pub fn init(format: LogFormat, directives: &str) -> Result<WorkerGuard, ExitError> {
    let filter = filter(directives)?;
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let registry = tracing_subscriber::registry();
    let (lines, guard) = log_lines::spawn(std::io::stderr());
    let lines = fmt::layer().with_writer(lines);
    let installed = match format {
        LogFormat::Text => registry
            .with(guarded(lines.with_ansi(coloured), filter))
            .try_init(),
        LogFormat::Json => registry
            .with(guarded(lines.json().flatten_event(true), filter))
            .try_init(),
    };
    installed.map_err(|error| ExitError::Software(format!("logs: {error}")))?;
    // From here on the last line of the program has the format of the log.
    exit::log_as_json(format == LogFormat::Json);
    std::panic::set_hook(Box::new(log_panic));
    Ok(guard)
}

/// Logs a panic: the standard library's own write to standard error blocks the thread while it is
/// not read.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let cause = panic.payload_as_str().unwrap_or_default();
    let at = panic.location().map(ToString::to_string);
    tracing::error!(
        at,
        cause,
        "a panic, which is a defect of this program: please report it"
    );
}

/// Checks the directives as [`init`] does.
///
/// # Errors
/// [`ExitError::Config`] for directives that cannot be read.
pub fn check(directives: &str) -> Result<(), ExitError> {
    filter(directives).map(drop)
}

fn filter(directives: &str) -> Result<EnvFilter, ExitError> {
    // Compose files set an undefined variable to the empty text.
    let directives = match directives.trim_matches([' ', ',']) {
        "" => DEFAULT_LEVEL,
        directives => directives,
    };
    // A single word is also the name of a target: a misspelt level would silence every other target.
    for word in directives.split(',').map(str::trim) {
        let is_alone = !word.is_empty() && !word.contains(['=', '[', ':']);
        if is_alone && word.parse::<LevelFilter>().is_err() {
            return Err(ExitError::Config(format!(
                "--log-level: '{word}' is no level: expected off, error, warn, info, debug or trace, or PART=LEVEL"
            )));
        }
    }
    let selects = |word: &str| {
        let target = word.split(['=', '[', ':']).next().unwrap_or_default();
        word.parse::<LevelFilter>().is_ok()
            || OUR_TARGETS.iter().any(|ours| target.starts_with(ours))
    };
    if !directives.split(',').any(|word| selects(word.trim())) {
        return Err(ExitError::Config(format!(
            "--log-level: '{directives}' selects no line of this program: begin with a level, as in info,{directives}"
        )));
    }
    EnvFilter::builder()
        .parse(format!("{SILENT},{directives}"))
        .map_err(|error| ExitError::Config(format!("--log-level: {error}")))
}

/// Limits a layer to the directives and, above them, to the cap.
fn guarded<S>(layer: impl Layer<S>, directives: EnvFilter) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    // Without a hint of its own the cap would hide the hint of the directives, and every debug line
    // of every library would be formatted before it is dropped.
    layer.with_filter(directives.and(filter_fn(within_cap).with_max_level_hint(LevelFilter::TRACE)))
}

fn within_cap(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO || !is_capped(metadata.target())
}

/// Returns true for targets of the crates in [`CAPPED_AT_INFO`], and of every `pingora_*` crate.
fn is_capped(target: &str) -> bool {
    let crate_name = target.split("::").next().unwrap_or(target);
    CAPPED_AT_INFO.contains(&crate_name) || crate_name.starts_with("pingora_")
}

#[cfg(test)]
#[expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, and one of them is about that"
)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the log lines of `body` under these directives.
    fn logged(directives: &str, body: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let lines = fmt::layer()
            .with_ansi(false)
            .with_writer(move || writer.clone());
        let filter = filter(directives).unwrap();
        let subscriber = tracing_subscriber::registry().with(guarded(lines, filter));
        tracing::subscriber::with_default(subscriber, body);
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn no_directive_lets_the_debug_lines_of_capped_crates_through() {
        for directives in "trace off,pingora_proxy=trace,redis=debug pingora=debug,info".split(' ')
        {
            let lines = logged(directives, || {
                tracing::debug!(target: "pingora_proxy::proxy_h1", "authorization: Bearer x");
                tracing::trace!(target: "redis", "AUTH password");
                tracing::info!(target: "pingora_proxy", "plain");
            });
            let is_secret = lines.contains("Bearer") || lines.contains("AUTH");
            assert!(!is_secret, "{directives}: {lines}");
        }
    }

    #[test]
    fn everything_else_obeys_the_directives() {
        let lines = logged("warn,sidecar=debug,hyperion=debug", || {
            tracing::debug!(target: "sidecar::proxy", "one");
            tracing::info!(target: "auth_server", "two");
            tracing::warn!(target: "pingora_core", "three");
            // A name that only begins as a capped one, hyper's, does.
            tracing::debug!(target: "hyperion", "four");
        });
        let seen = ["one", "two", "three", "four"].map(|line| lines.contains(line));
        assert_eq!(seen, [true, false, true, true], "{lines}");
    }

    #[test]
    fn lines_at_an_attacker_s_will_need_a_filter_that_names_them() {
        let lines = |directives: &str| {
            logged(directives, || {
                tracing::warn!(target: "h2::proto::ping_pong", "one");
                tracing::warn!(target: "rustls::common_state", "two");
                tracing::error!(target: "pingora_core::apps", "three");
                tracing::warn!(target: "pingora_core::protocols::http::v2::server", "four");
            })
        };
        for directives in ["", "trace", "pingora_core=info,debug"] {
            assert_eq!(lines(directives), "", "{directives}");
        }
        let named = lines("off,h2=warn,pingora_core::apps=error");
        assert!(named.contains("one") && named.contains("three"), "{named}");
        assert!(!named.contains("two") && !named.contains("four"), "{named}");
    }

    #[test]
    fn a_panic_is_a_line_of_the_log_that_says_where_and_why() {
        let of_the_library = std::panic::take_hook();
        std::panic::set_hook(Box::new(log_panic));
        let lines = logged("info", || {
            let spoken = std::panic::catch_unwind(|| panic!("no {}", "way"));
            let silent = std::panic::catch_unwind(|| std::panic::panic_any(7));
            assert!(spoken.is_err() && silent.is_err());
        });
        std::panic::set_hook(of_the_library);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        for line in &lines {
            let says_where = line.contains(concat!("at=\"", file!(), ":"));
            assert!(line.contains("ERROR") && says_where, "{line}");
        }
        assert!(lines[0].contains("cause=\"no way\""), "{}", lines[0]);
    }

    #[test]
    fn what_was_not_requested_is_not_even_read() {
        for (directives, max_level) in [
            ("info", LevelFilter::INFO),
            // The default.
            ("", LevelFilter::INFO),
            (" ", LevelFilter::INFO),
            (",", LevelFilter::INFO),
            ("pingora_proxy=off,error", LevelFilter::ERROR),
            ("sidecar=debug,warn", LevelFilter::DEBUG),
        ] {
            let filter = filter(directives).unwrap();
            let subscriber = tracing_subscriber::registry().with(guarded(fmt::layer(), filter));
            assert_eq!(subscriber.max_level_hint(), Some(max_level), "{directives}");
        }
    }

    #[test]
    fn unreadable_directives_are_a_configuration_error() {
        for directives in ["sidecar=loud", "inof", "info,sidecar", "info, debgu"] {
            let failure = init(LogFormat::Text, directives).unwrap_err();
            assert_eq!(failure.code(), 78, "{directives}");
        }
        for directives in ["", "INFO", "warn,sidecar=debug", "off", "info,"] {
            assert_eq!(check(directives), Ok(()), "{directives}");
        }
    }
}
