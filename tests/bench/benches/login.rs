//! Logins for each second of CPU, compared with the signatures of `openssl speed` on the same
//! machine, in turns. `make bench-login`.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program at a terminal; a measurement that cannot be taken ends with a message"
)]

use std::process::ExitCode;
use std::time::Duration;

use bench::cpu;
use bench::keep_alive::{KeepAlive, post_json};
use bench::load::each_once;
use bench::machine;
use bench::settings::Settings;
use bench::statistics::Summary;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, LOGIN, credentials};
use tests::actors::process::CommandLine;
use tests::keys::SigningType;

/// A signing type, its name in `openssl speed`, and the target: a share of that rate.
struct Row {
    signing_type: SigningType,
    openssl: &'static str,
    target: f64,
    /// Number of logins for one turn of about the right length.
    logins: usize,
}

const ROWS: [Row; 2] = [
    Row {
        signing_type: SigningType::Rsa,
        openssl: "rsa2048",
        target: 0.90,
        logins: 6000,
    },
    Row {
        signing_type: SigningType::Ecdsa,
        openssl: "ecdsap256",
        target: 0.50,
        logins: 30_000,
    },
];
const CONNECTIONS: usize = 16;

fn main() -> ExitCode {
    if machine::find("openssl").is_none() {
        println!("openssl is missing, and there is nothing to compare with");
        return ExitCode::FAILURE;
    }
    let settings = Settings::from_environment(5, 2.0);
    for row in ROWS {
        measure(&row, &settings);
    }
    ExitCode::SUCCESS
}

fn measure(row: &Row, settings: &Settings) {
    let name = row.signing_type.name();
    let server = AuthServerPlan::new()
        .flags(["--signing-type", name])
        .start()
        .ready();
    let (mut signatures, mut logins) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        signatures.push(signatures_per_second(row.openssl, settings.turn));
        logins.push(logins_per_cpu_second(
            &server,
            settings.amount(row.logins, 50),
        ));
    }
    let of = |values: &[f64]| Summary::of(values).expect("at least one round");
    let share = Summary::of_ratios(&logins, &signatures).expect("at least one round");
    let verdict = settings.verdict(share.median >= row.target);
    println!("{name}:");
    println!(
        "  openssl speed {}: {:.0} signatures/s",
        row.openssl,
        of(&signatures)
    );
    println!("  {:.0} logins for each second of CPU", of(&logins));
    println!("  share: {share} (target ≥ {}: {verdict})", row.target);
}

/// Returns the rate of one core: openssl counts its CPU time.
fn signatures_per_second(algorithm: &str, length: Duration) -> f64 {
    let seconds = length.as_secs().max(1).to_string();
    let finished = CommandLine::new("openssl")
        .arguments(["speed", "-mr", "-seconds", &seconds, algorithm])
        .run();
    rate(&finished.stdout).unwrap_or_else(|| panic!("openssl speed: {}", finished.stdout))
}

/// Returns the signatures per second, the last field but one of a line such as
/// `+F2:2:2048:2782.978723:50583.673469`.
fn rate(output: &str) -> Option<f64> {
    let line = output.lines().find(|line| line.starts_with("+F"))?;
    line.rsplit(':').nth(1)?.parse().ok()
}

fn logins_per_cpu_second(server: &AuthServer, count: usize) -> f64 {
    let request = post_json(&format!("/auth{LOGIN}"), &credentials().to_string());
    let mut warm = KeepAlive::connect(server.address()).expect("a connection");
    assert_eq!(warm.exchange(&request).expect("a response"), 200, "a login");
    let process = server.process().id();
    let before = cpu::time_of(process);
    let statuses = each_once(server.address(), CONNECTIONS, count, |_| &request);
    let spent = cpu::time_of(process) - before;
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200]);
    1e6 / cpu::microseconds_each(spent, count as u64)
}
